"""Writes the JSON Schema of every message into `contracts/schemas/`: `python -m contracts`, and with `--check` only compares.

That folder is what other languages read, so it is kept beside the code and a test fails when it is stale.
"""

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from .base import HttpInput, Message
from .events import RunEvent
from .inbox import InboxMessage

FOLDER = Path(__file__).parent / "schemas"

#: Messages that have no class of their own: each is one of several.
UNIONS: dict[str, Any] = {"RunEvent": RunEvent, "InboxMessage": InboxMessage}


def schemas() -> dict[str, str]:
    """File name -> text, for every message of this package and every union of them."""
    models: dict[str, Any] = dict(UNIONS)
    for found in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if found.name != "__main__":
            module = importlib.import_module(f"{__package__}.{found.name}")
            models |= {name: value for name, value in vars(module).items() if _is_message(value) and value.__module__ == module.__name__}
    return {f"{name}.json": _text(name, model) for name, model in sorted(models.items())}


def stale() -> list[str]:
    """Names of files that differ from what would be written, are missing, or belong to no message any more."""
    wanted = schemas()
    kept = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    return sorted(name for name in wanted.keys() | kept.keys() if wanted.get(name) != kept.get(name))


def write() -> None:
    """Make the folder what it should be."""
    FOLDER.mkdir(exist_ok=True)
    wanted = schemas()
    for path in FOLDER.glob("*.json"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def _is_message(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Message | HttpInput) and value not in {Message, HttpInput}


def _text(name: str, model: type[BaseModel] | Any) -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **TypeAdapter(model).json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        write()
    if names := stale():
        sys.exit(f"contracts/schemas is stale, run `make schemas`: {', '.join(names)}")
