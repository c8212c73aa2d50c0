"""Chooses the model of a deployment that names none: a provider with a key, a local Ollama, or the demo model."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from contracts.wire.operation import MODEL_BY_KEY, OLLAMA_PORT
from services.planner.agents import Agent
from services.planner.models import demo

OLLAMA_HOST = "127.0.0.1"
MAX_LIST_BYTES = 1 << 20


ANY_MODEL = "*"
"""Entry of a list of models that lets callers name any model."""


class _Named(Protocol):
    @property
    def model(self) -> str: ...
    @property
    def models(self) -> tuple[str, ...]: ...
    @property
    def fallbacks(self) -> tuple[str, ...]: ...
    @property
    def triage_model(self) -> str | None: ...


def named_models(agents: Mapping[str, Agent], deployment: _Named) -> list[str]:
    """Return the models that the deployment and its agents name, sorted. The demo model is always one of them.

    Requests may name any of these.
    """
    names = {deployment.model, deployment.triage_model, *deployment.models, *deployment.fallbacks, demo.NAME}
    for agent in agents.values():
        names |= {
            agent.model,
            *agent.models,
            *(agent.fallbacks or ()),
            agent.reflection.model if agent.reflection else None,
            agent.memory.get("summary_model"),
        }
    return sorted(name for name in names if name)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen model, and the reason, for the log."""

    model: str
    because: str


def choose_model(configured: str | None, environment: Mapping[str, str], local_models: Sequence[str] = ()) -> Chosen:
    """Choose a model. `local_models`: those of a local Ollama, best first."""
    if configured:
        return Chosen(configured, "RUNWIRE_MODEL names it")
    for key, model in MODEL_BY_KEY.items():
        if environment.get(key, "").strip():
            return Chosen(model, f"RUNWIRE_MODEL is not set, and {key} is")
    if local_models:
        return Chosen(
            f"ollama_chat/{local_models[0]}",
            "RUNWIRE_MODEL is not set, no provider's key is there, and a local Ollama has it",
        )
    return Chosen(demo.NAME, "RUNWIRE_MODEL is not set, and neither a provider's key nor a local Ollama was found")


async def find_model(configured: str | None, environment: Mapping[str, str]) -> Chosen:
    """Choose a model; query a local Ollama only if needed. Takes at most half a second."""
    chosen = choose_model(configured, environment)
    if chosen.model != demo.NAME or configured:
        return chosen
    return choose_model(configured, environment, await local_models())


async def local_models(host: str = OLLAMA_HOST, port: int = OLLAMA_PORT, *, timeout_s: float = 0.5) -> list[str]:
    """Names of the chat models of an Ollama, most recently changed first; empty if it does not answer in time."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(f"GET /api/tags HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
                data = b""  # until the end: an HTTP/1.0 server closes after the body
                while len(data) < MAX_LIST_BYTES and (more := await reader.read(1 << 16)):
                    data += more
            finally:
                writer.close()
                await writer.wait_closed()
        head, _, body = data.partition(b"\r\n\r\n")
        models = orjson.loads(body)["models"] if b" 200 " in head.partition(b"\r\n")[0] else []
        return [model["name"] for model in models if not _embeds(model)]
    except (OSError, TimeoutError, ValueError, KeyError, TypeError):
        return []


def _embeds(model: Mapping[str, object]) -> bool:
    """Whether it is an embedding model, which cannot chat."""
    details = model.get("details")
    family = str(details.get("family", "")) if isinstance(details, dict) else ""
    return "embed" in str(model["name"]) or "bert" in family
