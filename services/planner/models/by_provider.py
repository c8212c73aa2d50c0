"""Chooses how a model is asked: the demo model, directly with OpenAI's protocol, or through LiteLLM.

A deployment that names no model has that of a provider with a key, a local Ollama, or the demo model.

The LiteLLM side is imported when a model needs it: its HTTP client alone takes 0.1 s and 8 MB.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

import orjson

from contracts.wire.operation import MODEL_BY_KEY, OLLAMA_PORT
from services.planner.models import demo
from services.planner.models.limits import Limits
from services.planner.models.openai_compatible import OpenAICompatibleModel
from services.planner.models.providers import Endpoints
from services.planner.models.types import Delta, ModelRequest, Reply

OLLAMA_HOST = "127.0.0.1"
MAX_LIST_BYTES = 1 << 20
ANY_MODEL = "*"
"""Entry of a list of models that lets callers name any model."""


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


if TYPE_CHECKING:
    from services.planner.models.litellm.model import LiteLLMModel


class ByProvider:
    """A model that passes each request on to the one that its name belongs to."""

    def __init__(self, endpoints: Endpoints, limits: Limits) -> None:
        self._endpoints = endpoints
        self._limits = limits
        self._demo = demo.DemoModel()
        self._direct = OpenAICompatibleModel(endpoints, limits)

    @cached_property
    def _litellm(self) -> "LiteLLMModel":
        from services.planner.models.litellm.model import LiteLLMModel  # noqa: PLC0415, see above

        return LiteLLMModel(limits=self._limits)

    async def warm(self, models: Iterable[str]) -> None:
        """Import LiteLLM if one of these models needs it. Otherwise it is imported by the first request that does."""
        if any(_needs_litellm(model, self._endpoints) for model in models):
            await self._litellm.warm()

    async def aclose(self) -> None:
        """Close the connections that are kept open for further requests."""
        await self._direct.aclose()
        if "_litellm" in self.__dict__:
            await self._litellm.aclose()

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed."""
        if _is_demo(request.model):
            return self._demo.stream(request)
        return (self._litellm if _needs_litellm(request.model, self._endpoints) else self._direct).stream(request)


def missing_library(models: Iterable[str], endpoints: Endpoints) -> str | None:
    """Say which of the models needs LiteLLM where it is not installed, and how to mend that; None: none does."""
    needing = [name for name in models if name != ANY_MODEL and _needs_litellm(name, endpoints)]
    if not needing or find_spec("litellm"):
        return None
    return (
        f"{needing[0]} is asked through LiteLLM, which is not installed here: `make run` in a clone installs it where "
        "RUNWIRE_MODEL or a provider's key needs it, else: pip install '/path/to/clone[litellm]'"
    )


def _is_demo(model: str) -> bool:
    return model.startswith(f"{demo.PROVIDER}/")


def _needs_litellm(model: str, endpoints: Endpoints) -> bool:
    return not _is_demo(model) and not endpoints.serves(model)
