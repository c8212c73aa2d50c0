"""A scripted provider: an HTTP server with OpenAI's and Anthropic's streams, which replies what a test has scripted.

In a test: `with ModelServer() as server`, then `server.say(action(...))`. As a process: `python -m
tests.support.model_server --port 9000`, which takes `by_turn` over HTTP: POST /admin/say `{"marker", "replies"}`.

Replies are given out in the order of arrival; with a marker only to conversations that contain it, so that runs at once
do not mix. `by_turn` chooses by the number of assistant messages instead, which stays right when requests are repeated.
LiteLLM gives up after a hundred equal chunks in a row: vary long texts (`words`).
"""

import argparse
import asyncio
import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import uvicorn

from .model_shapes import anthropic_events, openai_events
from .needs import free_port
from .waiting import wait_until_blocking

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "reasoning_tokens": 3, "cached_tokens": 5}


@dataclass(frozen=True)
class Say:
    """One reply.

    Everything is optional; by default it is a 200 with `text` in pieces of seven characters, usage and an end.
    """

    text: str = ""
    reasoning: str = ""
    piece: int = 7
    pause_s: float = 0.0
    delay_s: float = 0.0
    """Silence before anything is sent."""
    usage: dict[str, int] | None = field(default_factory=lambda: dict(USAGE))
    finish_reason: str | None = "stop"
    done: bool = True
    """Whether the stream ends with `[DONE]`."""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    """Each with its name and its arguments as text; further fields are sent as they are."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: dict[str, Any] = field(default_factory=lambda: {"message": "scripted", "type": "server_error", "code": None})
    silent: bool = False
    """Take the request and never answer, until the client goes or the server is released."""
    stall_after: int | None = None
    """Go silent after so many events; `release` lets it go on."""
    cut_after: int | None = None
    """Drop the connection after so many events."""
    garbage_after: int | None = None
    """After so many events, send what is no event."""
    body: str | None = None
    """Send this as the whole body, as `text/html`."""
    blob: bytes | None = None
    """Send this as the body, with `headers`; `blobs` times."""
    blobs: int = 1
    times: int = 1
    """How often it is given out; the last reply of a script is given out for ever."""


def action(node: str, /, **args: Any) -> Say:
    """A reply that is one action."""
    return Say(text=json.dumps({"next_node": node, "args": args}))


def answer(text: str, **more: Any) -> Say:
    """A reply that ends the run."""
    return action("final_response", answer=text, **more)


def words(count: int) -> str:
    """A text of `count` different words."""
    return " ".join(f"word{number}" for number in range(count))


@dataclass
class Seen:
    """One request, and what became of it: `finished`, `gone` (the client left), `cut`, or None while it goes on."""

    number: int
    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    port: int = 0
    """Of the client: requests over one connection have the same."""
    sent: int = 0
    ended: str | None = None
    at: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        """All text of the conversation."""
        return json.dumps(self.body.get("messages", []), ensure_ascii=False) + json.dumps(
            self.body.get("system", ""), ensure_ascii=False
        )

    @property
    def turns(self) -> int:
        """How often the model has spoken in the conversation."""
        return sum(message["role"] == "assistant" for message in self.body.get("messages", []))


class Script:
    """What to say next. Not tied to a server, so that it can be shared and tested."""

    def __init__(self) -> None:
        self.ledger: list[Seen] = []
        self._queues: dict[str, deque[Say]] = {}
        self._turns: dict[str, list[Say]] = {}
        self._given: dict[str, int] = {}
        self.default = answer("Nothing was scripted.")
        self.choose: Callable[[Seen], Say] | None = None
        """Set it where a reply depends on what the model was sent; it is called in the server's thread."""

    def say(self, *replies: Say, marker: str = "") -> None:
        """Give these out one after another; the last for ever."""
        self._queues.setdefault(marker, deque()).extend(replies)

    def by_turn(self, *replies: Say, marker: str = "") -> None:
        """Give the n-th to conversations in which the model has spoken n times; the last also to longer ones."""
        self._turns[marker] = list(replies)

    def reset(self) -> None:
        """Forget all scripts and the ledger."""
        for kept in (self.ledger, self._queues, self._turns, self._given):
            kept.clear()
        self.choose = None

    def reply_to(self, seen: Seen) -> Say:
        """Choose the reply; a script with a marker wins."""
        self.ledger.append(seen)
        if self.choose is not None:
            return self.choose(seen)
        for marker in sorted({*self._queues, *self._turns}, key=len, reverse=True):
            if marker in seen.text:
                if turns := self._turns.get(marker):
                    return turns[min(seen.turns, len(turns) - 1)]
                if self._queues.get(marker):
                    return self._next(marker)
        return self.default

    def _next(self, marker: str) -> Say:
        queue = self._queues[marker]
        reply = queue[0]
        self._given[marker] = self._given.get(marker, 0) + 1
        if self._given[marker] >= reply.times and len(queue) > 1:
            queue.popleft()
            self._given[marker] = 0
        return reply


class App:
    """The provider as an ASGI application."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.released = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        data = b""
        while (message := await receive())["type"] == "http.request":
            data += message.get("body", b"")
            if not message.get("more_body"):
                break
        path, body = scope["path"], json.loads(data) if data else {}
        if path == "/admin/say":
            self._script.by_turn(*(Say(**reply) for reply in body["replies"]), marker=body["marker"])
            await _respond(send, 200, "{}")
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen = Seen(len(self._script.ledger), path, body, headers, (scope.get("client") or ("", 0))[1])
        speaking = asyncio.create_task(self._speak(seen, self._script.reply_to(seen), send))
        leaving = asyncio.create_task(_gone(receive))
        await asyncio.wait({speaking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not speaking.done():
            seen.ended = "gone"
            speaking.cancel()
        leaving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await speaking

    async def _speak(self, seen: Seen, reply: Say, send: Send) -> None:
        if reply.silent:
            await self.released.wait()
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        if reply.blob is None and (reply.status != 200 or reply.body is not None):
            text = reply.body if reply.body is not None else json.dumps({"error": reply.error})
            await _respond(
                send, reply.status, text, "application/json" if reply.body is None else "text/html", reply.headers
            )
            seen.ended = "finished"
            return
        await _start(send, reply.status, "text/event-stream", reply.headers)
        async for event in self._events(seen, reply):
            await send({"type": "http.response.body", "body": event, "more_body": True})
            seen.sent += 1
            if reply.pause_s:
                await asyncio.sleep(reply.pause_s)
        await send({"type": "http.response.body", "body": b""})
        seen.ended = "finished"

    async def _events(self, seen: Seen, reply: Say) -> AsyncIterator[bytes]:
        if reply.blob is not None:
            for _ in range(reply.blobs):
                yield reply.blob
            return
        events = anthropic_events if seen.path.endswith("/messages") else openai_events
        for number, event in enumerate(events(seen.body.get("model", ""), asdict(reply))):
            if number == reply.stall_after:
                await self.released.wait()
            if number == reply.cut_after:
                seen.ended = "cut"
                raise ConnectionResetError("as scripted")
            if number == reply.garbage_after:
                yield b'data: {"id": "x", "choices": [{"delta": {"content": "br\n\n'
            yield event


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, status: int, kind: str, headers: dict[str, str]) -> None:
    named = {"content-type": kind, **headers}
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(n.encode(), v.encode()) for n, v in named.items()],
        }
    )


async def _respond(
    send: Send, status: int, text: str, kind: str = "application/json", headers: dict[str, str] | None = None
) -> None:
    await _start(send, status, kind, headers or {})
    await send({"type": "http.response.body", "body": text.encode()})


class ModelServer(Script):
    """The provider on loopback, in a thread of its own, so that it notices when the test's loop leaves a request.

    Attributes:
        url: the base address for OpenAI's clients, `http://127.0.0.1:<port>/v1`.
        root: the same without the version, for Anthropic's.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__()
        port = free_port()
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/v1"
        self._app = App(self)
        self._server = _server(self._app, port, host)
        self._thread = threading.Thread(target=self._server.run, name="model-server", daemon=True)

    def release(self) -> None:
        """Let stalled replies go on."""
        self._server.servers[0].get_loop().call_soon_threadsafe(self._app.released.set)

    def __enter__(self) -> Self:
        """Start, and return once it takes requests."""
        self._thread.start()
        wait_until_blocking(lambda: self._server.started, what="the model server takes requests")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, whatever is still being said."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)


def _server(app: App, port: int, host: str = "127.0.0.1") -> uvicorn.Server:
    settings = uvicorn.Config(
        app, host=host, port=port, log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    return uvicorn.Server(settings)


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model provider on loopback")
    parser.add_argument("--port", type=int, required=True)
    _server(App(Script()), parser.parse_args().port).run()


if __name__ == "__main__":
    main()
