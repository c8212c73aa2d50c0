"""Generate the JSON Schemas of all messages, `contracts/schemas/`, and the document of all subjects, `asyncapi.json`.

`python -m contracts` writes; with `--check` it only compares.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

from pydantic import TypeAdapter

from .runs import events, inbox
from .sessions import records as sessions
from .wire import asyncapi
from .wire.base import HttpInput, Message

FOLDER = Path(__file__).parent / "schemas"
ASYNCAPI = Path(__file__).parent / "asyncapi.json"
_UNIONS: dict[str, Any] = {
    "RunEvent": events.RunEvent,
    "InboxMessage": inbox.InboxMessage,
    "SessionEvent": sessions.SessionEvent,
    "SessionMessage": sessions.SessionMessage,
}


def schemas() -> dict[str, str]:
    """Return file name -> text, of every message and union."""
    package = f"{__package__}."
    names = {module.name for module in walk_packages([str(FOLDER.parent)], package) if not module.ispkg}
    modules = [import_module(name) for name in names - {f"{package}__main__", f"{package}wire.base"}]
    models = {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Message | HttpInput) and value.__module__ == module.__name__
    }
    wanted: dict[str, Any] = {**models, **_UNIONS}
    return {f"{name}.json": _text(TypeAdapter(kind).json_schema()) for name, kind in sorted(wanted.items())}


def _text(schema: dict[str, Any]) -> str:
    return (
        json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2, ensure_ascii=False)
        + "\n"
    )


def stale() -> list[str]:
    """Return the files that are missing, different or left over."""
    wanted = schemas()
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    stale_schemas = sorted({name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)})
    described = ASYNCAPI.read_text(encoding="utf-8") if ASYNCAPI.exists() else ""
    return stale_schemas if described == asyncapi.text() else [*stale_schemas, ASYNCAPI.name]


def write() -> None:
    """Bring the files up to date."""
    FOLDER.mkdir(exist_ok=True)
    wanted = schemas()
    for path in FOLDER.glob("*.json"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    ASYNCAPI.write_text(asyncapi.text(), encoding="utf-8")


if __name__ == "__main__":
    if "--check" in sys.argv:
        if outdated := stale():
            sys.exit(f"contracts is stale: {', '.join(outdated)}. Run: make schemas")
    else:
        write()
