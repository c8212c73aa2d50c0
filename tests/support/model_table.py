"""Makes the table of models of the installed LiteLLM: `make models` writes it again after an upgrade."""

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from services.planner.models.providers import MODEL_TABLE

LICENCE_FILE = MODEL_TABLE.with_suffix(".LICENSE")
SOURCE = "trimmed from LiteLLM's model_prices_and_context_window.json; MIT licence, see model_table.LICENSE"
LICENCE_SOURCE = "licenses/LICENSE"
_SOURCE_FILE = "model_prices_and_context_window_backup.json"


def trimmed(table: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the rows that are kept of LiteLLM's table."""
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
    litellm = distribution("litellm")
    MODEL_TABLE.write_text(rendered(Path(str(litellm.locate_file("litellm"))), litellm.version))
    LICENCE_FILE.write_text(licence(litellm.read_text(LICENCE_SOURCE) or ""))


if __name__ == "__main__":
    main()
