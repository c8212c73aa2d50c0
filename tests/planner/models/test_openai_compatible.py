"""Models that are asked directly, over raw sockets: whose reply is read, how lines end, which credentials are sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.planner.conversation.encoding import Messages
from services.planner.models.errors import ModelFailed
from services.planner.models.openai_compatible import OpenAICompatibleModel, proxy_of
from services.planner.models.openai_reply import error_in, failure_of
from services.planner.models.providers import Endpoints, ModelServer
from services.planner.models.types import ModelRequest, Reply
from tests.support.raw_model_server import DONE, raw_server, response, says

NAME = "local/model"


@asynccontextmanager
async def model_at(url: str, key: str = "") -> AsyncIterator[OpenAICompatibleModel]:
    server = ModelServer(api_base=url, api_key_env="KEY" if key else None)
    model = OpenAICompatibleModel(Endpoints(environment={"KEY": key}, servers={NAME: server}))
    try:
        yield model
    finally:
        await model.aclose()


async def text_of(model: OpenAICompatibleModel) -> str:
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


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_request_is_sent_again_only_where_a_kept_connection_broke(is_kept: bool) -> None:  # noqa: FBT001
    """The server closed an idle one while the request was on its way. On a new one the request fails."""
    async with (
        raw_server(lambda n: [b""] if n == 1 + is_kept else [response(says(f"{n}"), DONE)]) as raw,
        model_at(raw.url) as model,
    ):
        if is_kept:
            assert [await text_of(model), await text_of(model)] == ["1", "3"]
        else:
            with pytest.raises(ModelFailed):
                await text_of(model)
            assert len(raw.heads) == 1


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


def test_no_proxy_is_asked_for_a_host_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NO_PROXY says."""
    monkeypatch.setenv("http_proxy", "http://user:word@proxy.example")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert proxy_of("http://models.example/v1") == "http://user:word@proxy.example"
    assert proxy_of("http://inside.example/v1") is None


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"code": "context_length_exceeded"}, "context_too_long"),
        (400, {"message": "This model's maximum context length is 8192 tokens."}, "context_too_long"),
        (400, {"type": "exceed_context_size_error", "message": "the request exceeds it"}, "context_too_long"),
        (413, {}, "context_too_long"),
        (400, {"code": "1261", "message": "no"}, "context_too_long"),
        (400, {"code": "content_filter"}, "model_refused"),
        (400, {"message": "blocked by our content management policy"}, "model_refused"),
        (422, {"message": "Unknown field"}, "model_refused"),
        (429, {"message": "Slow down, or reduce the length of the messages"}, "model_rate_limited"),
        (429, {"code": "insufficient_quota"}, "model_failed"),
        (401, {"message": "no key"}, "model_failed"),
        (500, {"message": "Input exceeds the available context size"}, "context_too_long"),
        (None, {"code": 429, "message": "slow down"}, "model_rate_limited"),
        (None, {"message": "something broke"}, "model_failed"),
    ],
)
def test_an_error_has_a_code(status: int | None, error: dict[str, Any], code: str) -> None:
    """By its own code, by known phrases where the status leaves it open, else by its status."""
    assert failure_of("openai/scripted", status, {}, error).fault.code == code


def test_a_quota_that_is_used_up_is_not_waited_for() -> None:
    """Another model may answer."""
    failure = failure_of("openai/scripted", 429, {"retry-after": "1"}, {"code": "insufficient_quota"})
    assert (failure.fault.retryable, failure.elsewhere) == (False, True)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error": {"message": "no", "code": "x"}}', {"message": "no", "code": "x"}),
        (b'[{"error": {"message": "no"}}]', {"message": "no"}),
        (b'{"error": "no"}', {"message": "no"}),
        (b'{"detail": "no"}', {"message": "no"}),
        (b'{"message": "no", "type": "y"}', {"message": "no", "type": "y"}),
        (b"no", {"message": "no"}),
        (b'"no"', {"message": "no"}),
    ],
)
def test_an_error_is_found_in_any_body(body: bytes, error: dict[str, Any]) -> None:
    """Servers differ."""
    assert error_in(body) == error


def test_only_codes_are_shown() -> None:
    """Of what the server wrote: no text, and nothing that looks like a key."""
    failure = failure_of("openai/scripted", 400, {}, {"message": "the secret", "code": "sk-abc", "type": "bad_request"})
    assert failure.fault.reason.endswith("(400, bad_request)")
