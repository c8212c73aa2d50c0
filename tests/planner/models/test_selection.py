"""Which model is used when none is named."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from contracts.wire.operation import MODEL_BY_KEY
from services.planner.models.by_provider import choose_model, find_model, local_models

TAGS = {
    "models": [
        {"name": "nomic-embed-text:latest", "details": {"family": "nomic-bert"}},
        {"name": "qwen3:8b", "details": {"family": "qwen3"}},
        {"name": "llama3.2:3b", "details": {"family": "llama"}},
    ]
}


@pytest.mark.parametrize("key", MODEL_BY_KEY)
def test_a_providers_key_is_enough(key: str) -> None:
    """One exported variable, and the run has a language model."""
    chosen = choose_model(None, {key: "made-up"}, ["qwen3:8b"])
    assert chosen.model == MODEL_BY_KEY[key]
    assert key in chosen.because


@pytest.mark.parametrize(
    ("configured", "environment", "local", "model"),
    [
        ("openai/mine", {"ANTHROPIC_API_KEY": "x"}, ["qwen3:8b"], "openai/mine"),
        (None, {"OPENAI_API_KEY": " "}, [], "builtin/rehearsal"),
        (None, {}, ["qwen3:8b"], "ollama_chat/qwen3:8b"),
    ],
    ids=["what is configured wins", "an empty key is none, as compose files leave it", "the demo model comes last"],
)
def test_a_model_is_chosen(configured: str | None, environment: dict[str, str], local: list[str], model: str) -> None:
    """A local one under the name of the provider that streams it well."""
    assert choose_model(configured, environment, local).model == model


@asynccontextmanager
async def serving(said: bytes | None) -> AsyncIterator[int]:
    """A server that says one thing to every request, or None: nothing ever.

    Gives its port; all its connections end with it.
    """
    talking = asyncio.Semaphore(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if said is None:
            await reader.read()
        else:
            writer.write(said)
        writer.close()
        await writer.wait_closed()
        talking.release()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await talking.acquire()


async def test_a_local_ollama_is_asked_for_what_it_has() -> None:
    """Models that only make vectors are none."""
    said = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + json.dumps(TAGS).encode()
    async with serving(said) as port:
        assert await local_models(port=port, timeout_s=5) == ["qwen3:8b", "llama3.2:3b"]


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.0 404 Not Found\r\n\r\n{}", b"HTTP/1.0 200 OK\r\n\r\nhello", b"HTTP/1.0 200 OK\r\n\r\n[1]"]
)
async def test_something_else_on_the_port_is_no_ollama(said: bytes) -> None:
    """Whatever it says."""
    async with serving(said) as port:
        assert await local_models(port=port, timeout_s=5) == []


async def test_a_port_that_never_answers_costs_little() -> None:
    """The look ends by itself."""
    async with serving(None) as port:
        assert await local_models(port=port, timeout_s=0.05) == []


async def test_nobody_looks_for_what_is_not_needed() -> None:
    """A configured demo model is kept."""
    assert (await find_model("builtin/rehearsal", {})).because == "RUNWIRE_MODEL names it"
    assert (await find_model(None, {"OPENAI_API_KEY": "x"})).model == MODEL_BY_KEY["OPENAI_API_KEY"]
