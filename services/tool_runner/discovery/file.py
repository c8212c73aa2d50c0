"""The tools file: specifications of tools that do not announce themselves."""

import tomllib
from pathlib import Path
from typing import Any

import orjson

from contracts.tools.messages import ToolSpec

from .announcements import Announcement, checked, short_reason


class InvalidToolsFile(ValueError):
    """The tools file cannot be used; the text says why in one sentence."""


def read_tools_file(path: Path) -> list[Announcement]:
    """Return the tools of a JSON or TOML file: a list of specifications, in TOML under `[[tools]]`.

    Raises InvalidToolsFile.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        content: Any = tomllib.loads(text) if path.suffix == ".toml" else orjson.loads(text)
    except OSError as error:
        raise InvalidToolsFile(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidToolsFile(f"{path}: {error}") from error
    entries = content.get("tools") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise InvalidToolsFile(f"{path}: expected a list of tool specifications, under `tools` in TOML")
    found = []
    for number, entry in enumerate(entries, start=1):
        try:
            spec = checked(ToolSpec.model_validate(entry))
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidToolsFile(f"{path}: tool {number}: {short_reason(error)}") from error
        found.append(Announcement(spec, spec.digest(), "", "file"))
    return found
