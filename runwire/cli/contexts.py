"""Contexts: gateways with a name, each with its API key, as `runwire context` keeps them for this user.

Rule: a context's key is sent to its own gateway alone.
"""

import json
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path

import typer

from runwire.private_files import write_private

NAMED: ContextVar[str | None] = ContextVar("NAMED", default=None)
"""The context that `runwire --context` names."""


@dataclass(frozen=True)
class Context:
    """A gateway, and the key that it is asked with."""

    url: str
    api_key: str | None = field(default=None, repr=False)


@dataclass
class Contexts:
    """All contexts of the user by name. `current`: the one that commands take if none is named."""

    known: dict[str, Context] = field(default_factory=dict)
    current: str | None = None

    @classmethod
    def read(cls) -> "Contexts":
        """Those of the file. Raises BadParameter for a file that cannot be used."""
        try:
            found = json.loads(_file().read_text(encoding="utf-8"))
            return cls({name: Context(**each) for name, each in found["known"].items()}, found["current"])
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise typer.BadParameter(f"{_file()} cannot be used ({type(error).__name__}); remove it") from None

    def write(self) -> None:
        """Keep them, readable by the user alone."""
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_private(_file(), json.dumps(asdict(self)))

    def named(self, name: str) -> Context:
        """The context of this name. Raises BadParameter."""
        if name not in self.known:
            there = f"there are {', '.join(sorted(self.known))}" if self.known else "there are none"
            raise typer.BadParameter(f"no context is called {name}; {there}: runwire context add NAME --url URL")
        return self.known[name]


def chosen(url: str | None) -> Context | None:
    """The context of a command: the named one, else the current one unless a URL is given. Raises BadParameter."""
    name = NAMED.get()
    if name and url:
        raise typer.BadParameter("give a context or a URL (--url, RUNWIRE_URL), not both")
    contexts = Contexts.read() if name or not url else Contexts()
    return contexts.named(name) if name else contexts.known.get(contexts.current or "")


def _file() -> Path:
    return Path(typer.get_app_dir("runwire")) / "contexts.json"
