"""Models that are asked directly, over raw sockets: whose reply is read, how lines end, which credentials are sent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import pytest

from services.planner.conversation.encoding import Messages
from services.planner.models.http_session import proxy_of
from services.planner.models.openai_compatible import OpenAICompatibleModel
from services.planner.models.providers import Endpoints, ModelServer
from services.planner.models.types import ModelRequest, Reply

NAME = "local/model"
DONE = b"data: [DONE]\n\n"


def says(text: str) -> bytes:
    """A chunk of a stream."""
    return b"data: " + orjson.dumps({"choices": [{"delta": {"content": text}}]}) + b"\n\n"


def response(*pieces: bytes) -> bytes:
    """A whole response, each piece in a chunk of its own."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class RawServer:
    """Answers the n-th request with `answer(n)`; what it returns beyond the first response is sent a moment later."""

    def __init__(self, answer: Callable[[int], list[bytes]]) -> None:
        self.heads: list[bytes] = []
        self.url = ""
        self.sent_late = asyncio.Event()
        self._answer = answer
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                self.heads.append(head)
                first, *late = self._answer(len(self.heads))
                writer.write(first)
                await writer.drain()
                if late:
                    await asyncio.sleep(0.05)
                    writer.write(b"".join(late))
                    await writer.drain()
                    self.sent_late.set()

    async def close(self) -> None:
        """End all connections."""
        for writer in self._connections.values():
            writer.close()
        await asyncio.gather(*self._connections, *(writer.wait_closed() for writer in self._connections.values()))


@asynccontextmanager
async def raw_server(answer: Callable[[int], list[bytes]]) -> AsyncIterator[RawServer]:
    """A server on a free port."""
    raw = RawServer(answer)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield raw
    finally:
        server.close()
        await raw.close()


@asynccontextmanager
async def model_at(url: str, key: str = "") -> AsyncIterator[OpenAICompatibleModel]:
    """A model behind this address."""
    server = ModelServer(api_base=url, api_key_env="KEY" if key else None)
    model = OpenAICompatibleModel(Endpoints(environment={"KEY": key}, servers={NAME: server}))
    try:
        yield model
    finally:
        await model.aclose()


async def text_of(model: OpenAICompatibleModel) -> str:
    """The text of a reply."""
    request = ModelRequest(model=NAME, messages=Messages.of([{"role": "user", "content": "hello"}]))
    last = [piece async for piece in model.stream(request)][-1]
    assert isinstance(last, Reply)
    return last.text


@pytest.mark.parametrize(
    "late",
    [
        response(says("somebody else's reply"), DONE),
        b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    ],
)
async def test_what_comes_between_two_replies_is_nobodys_reply(late: bytes) -> None:
    """Neither a second response nor the 408 that some servers send on an idle connection."""
    async with (
        raw_server(lambda n: [response(says(f"reply {n}"), DONE), late]) as raw,
        model_at(raw.url) as model,
    ):
        assert await text_of(model) == "reply 1"
        await raw.sent_late.wait()
        await asyncio.sleep(0.05)
        assert await text_of(model) == "reply 2"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_lines_end_as_server_sent_events_allow_and_come_in_any_pieces(end: bytes, size: int) -> None:
    """Also in the middle of a character, and after a byte order mark and a comment."""
    stream = (b"\xef\xbb\xbf" + says("né ") + b": comment\n\n" + says("😀") + DONE).replace(b"\n", end)
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    async with raw_server(lambda _: [response(*pieces)]) as raw, model_at(raw.url) as model:
        assert await text_of(model) == "né 😀"


async def test_credentials_of_netrc_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without a key gets none, and one with a key gets that."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with raw_server(lambda _: [response(says("yes"), DONE)]) as raw:
        for key in ("", "sk-key\n"):
            async with model_at(raw.url, key) as model:
                await text_of(model)
    without, with_key = (head.lower() for head in raw.heads)
    assert b"authorization" not in without
    assert b"authorization: bearer sk-key\r\n" in with_key


async def test_a_proxy_gets_its_own_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that stand in its address, and the request for another host."""
    async with raw_server(lambda _: [response(says("through a proxy"), DONE)]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://user:word@").removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "inside.example")
        async with model_at("http://models.example/v1") as model:
            assert await text_of(model) == "through a proxy"
    assert proxy.heads[0].startswith(b"POST http://models.example/v1/chat/completions ")
    assert b"Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n" in proxy.heads[0]
    assert proxy_of("http://inside.example/v1") is None
