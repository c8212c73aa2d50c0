"""Prices, context sizes and abilities of known models, from a trimmed copy of LiteLLM's table.

The table (`model_table.json`) is made from the pinned LiteLLM (`tests/support/model_table.py`), so that the library
need not be imported for it. Its licence is that of LiteLLM, in `model_table.LICENSE`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import orjson

from contracts.runs.payload import Usage

FILE = Path(__file__).with_name("model_table.json")
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
    return FILE.read_bytes()


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
