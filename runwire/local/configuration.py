"""Settings of `runwire up` from the files of the working folder, beside those of the environment.

| where | what stands there | counts |
| --- | --- | --- |
| the environment | `RUNWIRE_MODEL`, keys of providers, what tools need | first |
| `.env` | the same, as `NAME=value` | second |
| `runwire.toml` | settings in lower case, without `RUNWIRE_`; lists and tables as TOML has them | last |
"""

import json
import re
import tomllib
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from runwire.local.environments import is_secret
from runwire.local.supervisor import CannotLaunch

ENVIRONMENT, DOTENV, TOML = "environment", ".env", "runwire.toml"
_OF_ALL_COMMANDS = frozenset({"RUNWIRE_API_KEY", "RUNWIRE_DATA_DIR", "RUNWIRE_URL"})
"""A file of a folder must not say where other commands send a key, nor can they find what is elsewhere."""
_LOGIN = re.compile(r"//[^/@\s]+@")
_SETTING = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class Setting:
    """A variable, its value, and where that was found."""

    name: str
    value: str
    source: str

    @property
    def shown(self) -> str:
        """The value without secrets."""
        return "•••" if is_secret(self.name) else _LOGIN.sub("//•••@", self.value)


def settings(environment: MutableMapping[str, str], folder: Path) -> list[Setting]:
    """All settings, and what else the files set, by name. Raises CannotLaunch for a file that cannot be used."""
    given = [Setting(name, value, ENVIRONMENT) for name, value in environment.items() if name.startswith("RUNWIRE_")]
    found = {each.name: each for each in [*_of_toml(folder / TOML), *_of_dotenv(folder / DOTENV)]}
    if misplaced := sorted(found.keys() & _OF_ALL_COMMANDS):
        name = misplaced[0]
        raise CannotLaunch(f"{found[name].source}: {name} belongs into the environment, where all commands read it")
    found |= {name: Setting(name, environment[name], ENVIRONMENT) for name in found if name in environment}
    return sorted((found | {each.name: each for each in given}).values(), key=lambda each: each.name)


def apply(environment: MutableMapping[str, str], folder: Path) -> None:
    """Set what the files say and the environment does not. Raises CannotLaunch."""
    for each in settings(environment, folder):
        environment.setdefault(each.name, each.value)


def _of_dotenv(file: Path) -> list[Setting]:
    if not file.is_file():
        return []
    try:
        return [Setting(name, value or "", DOTENV) for name, value in dotenv_values(file).items()]
    except (OSError, UnicodeDecodeError) as error:
        raise CannotLaunch(f"{file} cannot be read: {error}") from error


def _of_toml(file: Path) -> list[Setting]:
    if not file.is_file():
        return []
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CannotLaunch(f"{file} cannot be read: {error}") from error
    if wrong := [name for name in document if not _SETTING.fullmatch(name)]:
        raise CannotLaunch(f"{file}: {wrong[0]} is no setting; write them in lower case and without RUNWIRE_")
    return [Setting(f"RUNWIRE_{name.upper()}", _text(file, name, value), TOML) for name, value in document.items()]


def _text(file: Path, name: str, value: Any) -> str:
    """A value as a variable holds it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) and "," not in each for each in value):
        return ",".join(value)
    try:
        return json.dumps(value)
    except TypeError:
        raise CannotLaunch(f"{file}: {name} is a date; write it as a text") from None
