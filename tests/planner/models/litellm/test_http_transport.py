"""Providers that send too much: every way in which LiteLLM asks one is bounded before it reads anything.

Time is that of the processor, with generous limits: each of these replies used to hold the loop for seconds, or took
gigabytes.
"""

import gzip
import json
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from services.planner.conversation.encoding import Messages
from services.planner.models.by_provider import ByProvider
from services.planner.models.errors import ModelFailed
from services.planner.models.limits import Limits
from services.planner.models.types import Model, ModelRequest, Reply
from tests.planner.conftest import Plan
from tests.support.loop_lag import loop_lag
from tests.support.model_paths import PATHS, Models, models_on
from tests.support.model_server import ModelServer, Say, answer

MODEL, CLAUDE, GEMINI = "openai/scripted", "anthropic/claude-sonnet-4-5", "gemini/scripted"
PROVIDERS = [MODEL, "hosted_vllm/scripted", CLAUDE, GEMINI, "ollama_chat/scripted"]
JSON = {"content-type": "application/json"}
STALL_S = 0.5
AT_ONCE_S = 0.2
"""Three times what takes longest of what is read at once; a buffer of 1 MB would take more."""
MB = 1 << 20


@pytest.fixture
async def model(model: Models) -> Models:
    """A model that is ready, so that what is measured is a reply alone."""
    await (model.warm(PROVIDERS) if isinstance(model, ByProvider) else model.warm())
    return model


async def outcome(model: Model, name: str, **more: float) -> tuple[str, ModelFailed | Reply, float]:
    """What was said, how it ended, and how long the loop was kept busy."""
    said, messages = "", [{"role": "user", "content": "?"}]
    request = ModelRequest(model=name, messages=Messages.of(messages), **more)  # type: ignore[arg-type]
    async with loop_lag() as lag:
        try:
            async for piece in model.stream(request):
                if isinstance(piece, Reply):
                    end: ModelFailed | Reply = piece
                else:
                    said += piece.text
        except ModelFailed as error:
            end = error
    return said, end, lag.worst_s


async def failure(model: Model, name: str, **more: float) -> ModelFailed:
    """The error of a reply. The event loop was free meanwhile."""
    _, end, worst_s = await outcome(model, name, **more)
    assert isinstance(end, ModelFailed)
    assert worst_s < STALL_S
    return end


def event(delta: object, **more: object) -> bytes:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None}]
    return b"data: %s\n\n" % json.dumps({**head, "choices": choices, **more}).encode()


def packed(data: bytes) -> Say:
    return Say(blob=gzip.compress(data), headers={"content-encoding": "gzip"})


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "status", "code"),
    [*((name, 500, "model_failed") for name in PROVIDERS), (MODEL, 429, "model_rate_limited")],
)
async def test_the_body_of_an_error_is_cut(
    server: ModelServer, model: Model, name: str, status: int, code: str
) -> None:
    """Of megabytes LiteLLM sees a few KB, which is enough to know the error."""
    body = json.dumps({"error": {"message": "E" * 5 * MB, "type": "server_error"}}).encode()
    server.say(Say(status=status, blob=body, headers=JSON))
    assert (await failure(model, name)).fault.code == code


@pytest.mark.parametrize("is_packed", [False, True])
async def test_what_an_error_is_stays_known(server: ModelServer, model: Model, *, is_packed: bool) -> None:
    """A server that repeats the whole request in its error still says that the conversation is too long."""
    message = "This model's maximum context length is 10 tokens." + "x" * 50_000
    error = {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}
    body = json.dumps({"error": error}).encode()
    said = packed(body) if is_packed else Say(blob=body)
    server.say(replace(said, status=400, headers=said.headers | JSON))
    assert (await failure(model, MODEL)).fault.code == "context_too_long"


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_reply_has_an_end(server: ModelServer, model: Model, name: str, *, is_packed: bool) -> None:
    """After 8 MB, also one of 300 MB that is compressed to some 300 KB."""
    line = event({"content": "z" * 1_000_000})
    server.say(packed(line * 300) if is_packed else Say(blob=line, blobs=300))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failed = await failure(model, name)
    assert "sent more than 8,388,608 bytes" in failed.fault.reason
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # KB
    assert {seen.headers["accept-encoding"] for seen in server.ledger} == {"identity"}


async def test_a_small_packed_reply_is_read(server: ModelServer, model: Model) -> None:
    """Some servers compress although the request refuses it."""
    server.say(packed(event({"content": "hello"}) + b"data: [DONE]\n\n"))
    said, end, _ = await outcome(model, MODEL)
    assert isinstance(end, Reply)
    assert said == "hello"


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_line_has_an_end(server: ModelServer, model: Model, name: str) -> None:
    """After a megabyte the end of a line is not waited for."""
    server.say(Say(blob=b"data: " + b"x" * 100_000, blobs=1000))
    assert "a line of more than 1,048,576 bytes" in (await failure(model, name)).fault.reason


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "status"), [*((name, 307) for name in PROVIDERS), (MODEL, 301)])
async def test_no_redirect_is_followed(server: ModelServer, model: Model, name: str, status: int) -> None:
    """A prompt goes to no address but the one that the deployment names."""
    server.say(Say(status=status, blob=b"", headers={"location": "/trap"}))
    failed = await failure(model, name)
    assert f"redirects requests ({status})" in failed.fault.reason
    assert not failed.fault.retryable
    assert failed.elsewhere
    assert not [seen for seen in server.ledger if seen.path == "/trap"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "blob",
    [
        b": nothing\n\n" * 80_000,
        b"\n" * 900_000,
        event({}, model="m" * 900_000),
        event({}, choices=[{"index": number, "delta": {"content": "x"}} for number in range(15_000)]),
        event({"tool_calls": [{"index": number, "function": {"name": "look"}} for number in range(15_000)]}),
        event({}, candidates=[{"content": {"parts": [{"text": "x"}]}, "index": number} for number in range(15_000)]),
    ],
    ids=["comments", "empty", "label", "choices", "calls", "candidates"],
)
@pytest.mark.parametrize("name", [MODEL, CLAUDE, GEMINI])
async def test_no_line_holds_the_loop(server: ModelServer, model: Model, name: str, blob: bytes) -> None:
    """Lines that say nothing are left out, and so are parts of an event: a library would do work for each of them."""
    server.say(Say(blob=blob))
    _, _, worst_s = await outcome(model, name, total_s=20)
    assert worst_s < STALL_S


@contextmanager
def plain_server(start: bytes, more: bytes) -> Iterator[str]:
    """A server that answers whatever it is asked with some bytes, and then with others for ever. Yields its address."""

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(start)
                    while more:
                        connection.sendall(more)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("start", "more", "reason"),
    [
        (b"200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 2000, "sent more than 200,000 bytes"),
        (b"100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, "within 2 s"),
    ],
    ids=["chunks", "responses"],
)
@pytest.mark.parametrize("path", PATHS)
async def test_the_smallest_parts_hold_nobody_up(path: str, start: bytes, more: bytes, reason: str) -> None:
    """A parser goes through all that was read at once, which may be thousands of them."""
    with plain_server(b"HTTP/1.1 " + start, more) as url:
        model = models_on(path, url, Limits(reply=200_000))
        await (model.warm(PROVIDERS[:1]) if isinstance(model, ByProvider) else model.warm())
        _, end, worst_s = await outcome(model, MODEL, total_s=60 if "bytes" in reason else 2)
        await model.aclose()
        assert isinstance(end, ModelFailed)
        assert reason in end.fault.reason
        assert worst_s < AT_ONCE_S


async def test_time_limits_hold_while_something_comes(server: ModelServer, model: Model) -> None:
    """An error's body that comes byte by byte, and events that say nothing."""
    server.say(Say(status=500, blob=b"E", blobs=10_000, pause_s=0.05))
    server.say(Say(blob=event({}) * 10, blobs=10_000, pause_s=0.01))
    for _ in range(2):
        assert "did not finish within 0.5 s" in (await failure(model, MODEL, total_s=0.5)).fault.reason


async def test_a_provider_that_is_asked_past_the_bounds_is_refused(
    model: Model, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of LiteLLM's providers have HTTP clients of their own."""
    for name in ("OPENAI_LIKE", "OPENAI"):
        monkeypatch.setenv(f"{name}_API_KEY", "made-up")
    for name in ("AIOHTTP_OPENAI", "OPENAI"):
        monkeypatch.setenv(f"{name}_API_BASE", server.url)
    server.say(Say(text="hello"))
    said, end, _ = await outcome(model, "aiohttp_openai/scripted")
    assert isinstance(end, ModelFailed)
    assert said == ""


async def test_a_reply_that_is_too_long_is_asked_for_again(provider: ModelServer, plan: Plan) -> None:
    """What was shown of it is handled as that of any reply that broke off."""
    planning = await plan(model_reply_bytes=100_000)
    begun = event({"content": '{"next_node": "final_response", "args": {"answer": "so far'})
    provider.say(Say(blob=begun + event({"content": " and on" * 100}) * 200), answer("The answer."))
    story = await planning.tell()
    assert story.end.type == "done"
    assert story.end.raw_answer == story.shown() == "The answer."
    assert "sent more than 100,000 bytes" in story.of("model_failed")[0].fault.reason
    assert story.of("asked")[-1].cause == "provider"


async def test_the_deadline_holds_while_a_reply_comes_at_full_speed(provider: ModelServer, plan: Plan) -> None:
    """Its end would be seconds away."""
    planning = await plan(model_reply_bytes=1 << 30)
    provider.say(Say(blob=event({}) * 100, blobs=100_000))
    story = await planning.tell(limits={"deadline_s": 2})
    assert story.end.reason == "budget_exhausted"
    assert story.end.usage.model_calls <= 1
