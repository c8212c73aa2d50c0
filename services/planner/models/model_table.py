"""Prices, context sizes and abilities of known models, from a trimmed copy of LiteLLM's table.

The table (`model_table.json`) is made from the pinned LiteLLM, so that the library need not be imported for it. A test
compares the two; `make models` writes the table again after an upgrade of LiteLLM. Its licence is that of LiteLLM, in
`model_table.LICENSE`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from contracts.runs.payload import Usage

FILE = Path(__file__).with_name("model_table.json")
LICENCE_FILE = FILE.with_suffix(".LICENSE")
SOURCE = "trimmed from LiteLLM's model_prices_and_context_window.json; MIT licence, see model_table.LICENSE"
LICENCE_SOURCE = "licenses/LICENSE"
_SOURCE_FILE = "model_prices_and_context_window_backup.json"
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


@cache
def _rows() -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = orjson.loads(FILE.read_bytes())["models"]
    return rows


def known_model(name: str) -> KnownModel | None:
    """Look a model up by its full name (`groq/llama-3.3-70b`), else without its provider where that is unambiguous."""
    rows = _rows()
    row = rows.get(name)
    if row is None:
        provider, _, rest = name.partition("/")
        row = rows.get(rest) if provider in _PREFIXES_LEFT_OUT else None
    if row is None:
        return None
    provider, input_price, output_price, cached_price, context_tokens, vision, reasoning = row
    return KnownModel(provider, input_price, output_price, cached_price, context_tokens, bool(vision), bool(reasoning))


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


def trimmed(table: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the rows that this module keeps of LiteLLM's table."""
    return {
        name: [
            entry.get("litellm_provider", ""),
            entry.get("input_cost_per_token"),
            entry.get("output_cost_per_token"),
            entry.get("cache_read_input_token_cost"),
            entry.get("max_input_tokens") if isinstance(entry.get("max_input_tokens"), int) else None,
            int(bool(entry.get("supports_vision"))),
            int(bool(entry.get("supports_reasoning"))),
        ]
        for name, entry in sorted(table.items())
        if entry.get("mode") in {"chat", "responses"}
    }


def rendered(folder: Path, version: str) -> str:
    """Return the file's content, made of the LiteLLM in `folder`: a row per line, so that a diff shows what changed."""
    rows = trimmed(json.loads((folder / _SOURCE_FILE).read_bytes()))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    head = json.dumps({"source": SOURCE, "litellm": version})[:-1]
    return f'{head}, "models": {{\n{lines}\n}}}}\n'


def licence(text: str) -> str:
    """Return the content of the licence file. `text`: LiteLLM's licence, which a copy of its table has to keep."""
    return f"model_table.json is a trimmed copy of a file of LiteLLM, whose licence is:\n\n{text}"


def main() -> None:
    """Write the table and its licence again, from the LiteLLM that is installed."""
    # Imported for this job alone: the planner must not wait for it.
    from importlib.metadata import distribution  # noqa: PLC0415

    litellm = distribution("litellm")
    FILE.write_text(rendered(Path(str(litellm.locate_file("litellm"))), litellm.version))
    LICENCE_FILE.write_text(licence(litellm.read_text(LICENCE_SOURCE) or ""))


if __name__ == "__main__":
    main()
