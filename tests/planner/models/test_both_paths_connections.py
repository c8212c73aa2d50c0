"""Both ways to a model: connections are kept, proxies and CA settings are honoured; and what a request may carry."""

import asyncio
import base64
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.planner.conversation.encoding import Messages
from services.planner.models.errors import ModelFailed
from services.planner.models.types import Model, ModelRequest, Reply
from tests.planner.shown_images import png
from tests.support.model_paths import PATHS, Models, models_on
from tests.support.model_server import ModelServer, Say
from tests.support.needs import needs_program
from tests.support.raw_model_server import DONE, raw_server, response, says

MODEL, CLAUDE = "openai/scripted", "anthropic/claude-sonnet-4-5"
FUNCTION = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "c00010001", "type": "function", "function": {"name": "look", "arguments": "{}"}}
QUESTION = {"role": "user", "content": "?"}


@pytest.fixture
def model(model: Models, server: ModelServer) -> Models:
    server.say(Say(text="yes"))
    return model


@asynccontextmanager
async def models_at(path: str, url: str) -> AsyncIterator[Models]:
    """Models on this path, at this address."""
    models = models_on(path, url)
    try:
        yield models
    finally:
        await models.aclose()


async def text_of(model: Model, name: str = MODEL, *messages: dict[str, Any], **more: Any) -> str:
    request = ModelRequest(model=name, messages=Messages.of(messages or [QUESTION]), timeout_s=10, **more)
    last = [piece async for piece in model.stream(request)][-1]
    assert isinstance(last, Reply)
    return last.text


@pytest.mark.parametrize("name", [MODEL, "hosted_vllm/scripted", CLAUDE])
async def test_a_connection_is_kept(server: ModelServer, model: Model, name: str) -> None:
    """A reply is read to its end, so the next request goes over the same connection."""
    for _ in range(4):
        assert await text_of(model, name) == "yes"
    assert len({seen.port for seen in server.ledger}) == 1


@pytest.mark.parametrize("path", PATHS)
async def test_a_proxy_is_used(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the environment, with the credentials in its address."""
    async with raw_server(lambda _: [response(says("through a proxy"), DONE)]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://user:word@").removesuffix("/v1"))
        async with models_at(path, "http://models.example/v1") as model:
            assert await text_of(model) == "through a proxy"
    # The first request may be LiteLLM's to a server on loopback, before it is ready.
    assert proxy.heads[-1].startswith(b"POST http://models.example/v1/chat/completions ")
    assert b"proxy-authorization: basic dxnlcjp3b3jk\r\n" in proxy.heads[-1].lower()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for loopback, with its key, which no CA has signed."""
    made = tmp_path_factory.mktemp("tls") / "server.pem"
    command = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=loopback -addext subjectAltName=IP:127.0.0.1"
    names = ["-out", str(made), "-keyout", str(made)]
    subprocess.run([needs_program("openssl"), *command.split(), *names], check=True, capture_output=True)
    return made


@pytest.mark.parametrize("path", PATHS)
async def test_the_ca_of_the_environment_is_trusted_and_no_other(
    path: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SSL_CERT_FILE` names it. Without it the failure is one of the connection."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with raw_server(lambda _: [response(says("in private"), DONE)], tls) as server:
        async with models_at(path, server.url) as model:
            with pytest.raises(ModelFailed, match="openai/scripted cannot be reached"):
                await text_of(model)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with models_at(path, server.url) as model:
            assert await text_of(model) == "in private"


async def test_native_calls_of_a_conversation_arrive(server: ModelServer, model: Model) -> None:
    """Functions, the choice of one, earlier calls and their results."""
    conversation: list[dict[str, Any]] = [
        QUESTION,
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": CALL["id"], "content": "found"},
    ]
    tools = [{"type": "function", "function": FUNCTION}]
    await text_of(model, MODEL, *conversation, tools=tools, tool_choice="required")
    body = server.ledger[-1].body
    assert (body["tools"], body["tool_choice"]) == (tools, "required")
    assert body["messages"] == conversation
    await text_of(model, CLAUDE, *conversation, tools=tools, tool_choice="required")
    body = server.ledger[-1].body
    assert (body["tools"][0]["name"], body["tool_choice"]["type"]) == ("look", "any")
    kinds = [part["type"] for message in body["messages"] for part in message["content"]]
    assert kinds == ["text", "tool_use", "tool_result"]


async def test_an_image_arrives(server: ModelServer, model: Model) -> None:
    """In the form of the provider."""
    data = base64.b64encode(png(1)).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    message = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}
    await text_of(model, MODEL, message)
    assert server.ledger[-1].body["messages"] == [message]
    await text_of(model, CLAUDE, message)
    source = server.ledger[-1].body["messages"][0]["content"][1]["source"]
    assert source == {"type": "base64", "media_type": "image/png", "data": data}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_read_by_either_name(server: ModelServer, model: Model, field: str) -> None:
    """VLLM and DeepSeek use the one, OpenRouter, Groq and Ollama the other."""
    chunks = [{"choices": [{"index": 0, "delta": {name: "so"}}]} for name in (field, "content")]
    server.reset()
    server.say(Say(blob=b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + DONE))
    *_, reply = [piece async for piece in model.stream(ModelRequest(model=MODEL, messages=Messages.of([QUESTION])))]
    assert isinstance(reply, Reply)
    assert (reply.reasoning, reply.text) == ("so", "so")


@pytest.mark.parametrize("code", [429, "rate_limit_exceeded"])
async def test_an_error_inside_a_stream_is_a_failure(server: ModelServer, model: Model, code: object) -> None:
    """Some servers begin a stream with 200, and send their error as an event."""
    error = {"error": {"message": "slow down", "type": "rate_limit_error", "code": code}}
    server.reset()
    server.say(Say(blob=b"data: " + orjson.dumps(error) + b"\n\n"))
    with pytest.raises(ModelFailed) as failed:
        await text_of(model)
    assert failed.value.fault.retryable


async def test_the_event_loop_is_free_while_a_request_is_large(server: ModelServer, model: Model) -> None:
    """A conversation of megabytes is sent while others go on."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    assert await text_of(model, MODEL, {"role": "user", "content": "x" * (5 << 20)}) == "yes"
    counting.cancel()
    assert len(server.ledger[-1].text) > 5 << 20
    assert turns > 3
