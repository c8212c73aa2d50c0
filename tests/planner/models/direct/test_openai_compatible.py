"""Models that are asked directly, over raw sockets: whose reply is read, how lines end, which credentials are sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.planner.conversation.encoding import Messages
from services.planner.models.direct.openai_compatible import OpenAICompatibleModel, proxy_of
from services.planner.models.errors import ModelFailed
from services.planner.models.providers import Endpoints, ModelServer
from services.planner.models.types import ModelRequest, Reply
from tests.support.raw_model_server import DONE, raw_server, response, says

NAME = "local/model"


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


def test_no_proxy_is_asked_for_a_host_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NO_PROXY says."""
    monkeypatch.setenv("http_proxy", "http://user:word@proxy.example")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert proxy_of("http://models.example/v1") == "http://user:word@proxy.example"
    assert proxy_of("http://inside.example/v1") is None
