"""Known providers and models: their addresses, the variables of their keys, prices, context sizes and abilities.

docs/rules/providers.md is made of the table of providers, which speak OpenAI's protocol. Every other provider is asked
through LiteLLM.

What is known of models (`model_table.json`) is a trimmed copy of the table of the pinned LiteLLM, made by
`tests/support/model_table.py`, so that the library need not be imported for it. Its licence is that of LiteLLM, in
`model_table.LICENSE`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel, ConfigDict, Field

from contracts.runs.payload import Usage
from services.planner.models.errors import ADDRESS_INVALID, KEY_INVALID, KEY_MISSING, ModelFailed, failure

_KEY = re.compile(r"""[!#-&(-~]([!-~]*[!#-&(-~])?""", re.ASCII)
"""What an HTTP header may hold as a key: visible ASCII, not in quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider with OpenAI's protocol. `bases`, `keys`: variables, of which the first that is set applies."""

    base: str | None
    """Base address without a variable; None: there is none."""
    bases: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    needs_key: bool = True
    path: str = ""
    """Appended to a base from a variable that LiteLLM's users set without it."""


_OLLAMA = Provider(
    base="http://localhost:11434/v1", bases=("OLLAMA_API_BASE",), keys=("OLLAMA_API_KEY",), needs_key=False, path="/v1"
)
PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider(
        base="https://api.openai.com/v1", bases=("OPENAI_BASE_URL", "OPENAI_API_BASE"), keys=("OPENAI_API_KEY",)
    ),
    "hosted_vllm": Provider(base=None, bases=("HOSTED_VLLM_API_BASE",), keys=("HOSTED_VLLM_API_KEY",), needs_key=False),
    "ollama": _OLLAMA,
    "ollama_chat": _OLLAMA,
    "lm_studio": Provider(
        base="http://localhost:1234/v1", bases=("LM_STUDIO_API_BASE",), keys=("LM_STUDIO_API_KEY",), needs_key=False
    ),
    "openrouter": Provider(
        base="https://openrouter.ai/api/v1", bases=("OPENROUTER_API_BASE",), keys=("OPENROUTER_API_KEY", "OR_API_KEY")
    ),
    "groq": Provider(base="https://api.groq.com/openai/v1", bases=("GROQ_API_BASE",), keys=("GROQ_API_KEY",)),
    "deepseek": Provider(base="https://api.deepseek.com/v1", bases=("DEEPSEEK_API_BASE",), keys=("DEEPSEEK_API_KEY",)),
    "mistral": Provider(base="https://api.mistral.ai/v1", bases=("MISTRAL_API_BASE",), keys=("MISTRAL_API_KEY",)),
    "xai": Provider(base="https://api.x.ai/v1", bases=("XAI_API_BASE",), keys=("XAI_API_KEY",)),
    "together_ai": Provider(
        base="https://api.together.xyz/v1",
        bases=("TOGETHER_AI_API_BASE",),
        keys=("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
    ),
    "fireworks_ai": Provider(
        base="https://api.fireworks.ai/inference/v1",
        bases=("FIREWORKS_API_BASE",),
        keys=("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY"),
    ),
}
"""Prefix of a model's name -> provider."""


class ModelServer(BaseModel):
    """Where one model is served, and the name of the variable that holds its key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    api_base: str = Field(description="base address of an OpenAI-compatible server, for example http://gpu1:8000/v1")
    api_key_env: str | None = Field(default=None, description="variable that holds its key; none: it needs no key")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and as whom a model is asked. `model`: its name there."""

    url: str
    model: str
    key: str | None = field(repr=False)
    reasons: bool
    """Whether it takes a reasoning effort."""


def provider_of(model: str) -> str | None:
    """Return the provider of a model where it speaks OpenAI's protocol, else None."""
    prefix, slash, _ = model.partition("/")
    if slash:
        return prefix if prefix in PROVIDERS else None
    known = known_model(model)  # `gpt-5.4-mini` alone
    return known.provider if known and known.provider == "openai" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Finds the endpoint of a model.

    `api_base` and `api_key` are those of the deployment: for models `openai/…` and `hosted_vllm/…` alone. `servers`: of
    single models, by full name. `environment`: with the providers' own variables.
    """

    environment: Mapping[str, str]
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    servers: Mapping[str, ModelServer] = field(default_factory=dict)
    reasoning: Mapping[str, bool] = field(default_factory=dict)
    """Declared by the deployment: whether a model takes a reasoning effort."""

    def serves(self, model: str) -> bool:
        """Whether the model is asked directly, with OpenAI's protocol."""
        return model in self.servers or provider_of(model) is not None

    def of(self, model: str) -> Endpoint:
        """Return the endpoint of a model. Raises ModelFailed if its address or key is missing."""
        server, name, variable = self.servers.get(model), provider_of(model), "RUNWIRE_MODEL_API_KEY"
        provider = PROVIDERS[name] if name else Provider(base=None, needs_key=False)
        if server is not None:
            variable = server.api_key_env or ""
            base, key = server.api_base, self.environment.get(variable, "").strip() or None
            if variable and key is None:
                raise failure(KEY_MISSING, model, key=variable)
        elif self.api_base and name in {"openai", "hosted_vllm"}:
            base, key = self.api_base, (self.api_key or "").strip() or None
        else:
            base = self._base(model, provider)
            given = ((each, self.environment.get(each, "").strip()) for each in provider.keys)
            variable, key = next(((each, value) for each, value in given if value), (variable, None))
            if key is None and provider.needs_key:
                raise failure(KEY_MISSING, model, key=provider.keys[0])
        if key is not None and not _KEY.fullmatch(key):
            raise failure(KEY_INVALID, model, key=variable)
        name_there = model.partition("/")[2] if name and "/" in model else model
        if name == "fireworks_ai" and not name_there.startswith("accounts/") and "#" not in name_there:
            name_there = f"accounts/fireworks/models/{name_there}"
        url = f"{_checked(model, base.strip(), key)}/chat/completions"
        return Endpoint(url, name_there, key, reasons(model, self.reasoning))

    def _base(self, model: str, provider: Provider) -> str:
        for variable in provider.bases:
            if value := self.environment.get(variable, "").strip().rstrip("/"):
                return value if value.endswith(provider.path) else value + provider.path
        if provider.base is None:
            variables = " or ".join(("RUNWIRE_MODEL_API_BASE", *provider.bases))
            raise ModelFailed(
                "model_failed", f"there is no address for {model}: set {variables} where the planner runs"
            )
        return provider.base


def _checked(model: str, base: str, key: str | None) -> str:
    try:
        parts = urlsplit(base)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise failure(ADDRESS_INVALID, model)
    if key is not None and parts.username is not None:
        raise ModelFailed("model_failed", f"the address of {model} names a user, and there is an API key: keep one")
    return base.rstrip("/").removesuffix("/chat/completions")


MODEL_TABLE = Path(__file__).with_name("model_table.json")
_PREFIXES_LEFT_OUT = frozenset({"openai", "anthropic", "azure", "vertex_ai", "bedrock", "cohere", "cohere_chat"})
"""Providers whose models the table also, or only, names without the provider."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What is known of a model. Prices in USD per token; None: unknown."""

    provider: str
    input_price: float | None
    output_price: float | None
    cached_price: float | None
    context_tokens: int | None
    vision: bool
    reasoning: bool


@lru_cache(maxsize=256)
def known_model(name: str) -> KnownModel | None:
    """Look a model up by its full name (`groq/llama-3.3-70b`), else without its provider where that is unambiguous."""
    provider, _, rest = name.partition("/")
    row = _row(name) or (_row(rest) if provider in _PREFIXES_LEFT_OUT else None)
    if row is None:
        return None
    provider, input_price, output_price, cached_price, context_tokens, vision, reasoning = row
    return KnownModel(provider, input_price, output_price, cached_price, context_tokens, bool(vision), bool(reasoning))


def _row(name: str) -> list[Any] | None:
    """The line of a model. The table is kept as text: as objects it takes 4 MB."""
    key, text = b"\n" + orjson.dumps(name) + b": ", _text()
    if (at := text.find(key)) < 0:
        return None
    row: list[Any] = orjson.loads(text[at + len(key) : text.index(b"]", at + len(key)) + 1])
    return row


@cache
def _text() -> bytes:
    return MODEL_TABLE.read_bytes()


def reasons(name: str, declared: Mapping[str, bool]) -> bool:
    """Whether a model takes a reasoning effort: as `declared` says, else the table."""
    known = known_model(name)
    return declared.get(name, known is not None and known.reasoning)


def cost_usd(model: str, usage: Usage) -> float | None:
    """Return what a reply costs, or None where the model's price is unknown."""
    known = known_model(model)
    if known is None or known.input_price is None or known.output_price is None:
        return None
    cached = usage.cached_tokens if known.cached_price is not None else 0
    fresh = max(0, usage.prompt_tokens - cached)
    return (
        fresh * known.input_price + cached * (known.cached_price or 0.0) + usage.completion_tokens * known.output_price
    )
