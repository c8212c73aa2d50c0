"""The frame of every command: its options, its gateway and client, what it prints, its exit code.

A command is a function or coroutine function that is registered with `command`. It returns what is `Found`, a text, an
exit code, or nothing. If it asks the gateway, its first argument is the client, and an argument that is marked with an
`Id` takes any unique beginning of one, and arrives whole.

The gateway is given by a URL or a context: a gateway with a name and an API key, as `runwire context` keeps it for this
user. The key of a context is sent to its own gateway alone.
"""

import asyncio
import functools
import inspect
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from typer.core import TyperCommand, TyperGroup

from contracts.wire.names import ID
from runwire.cli.app import NAMED
from runwire.cli.printing import ERR, OUT, Exit, end, marked, one_line, print_json, print_table
from runwire.errors import NotFound
from runwire.identities import write_private
from runwire.local.data_folder import data_dir, remembered

if TYPE_CHECKING:
    from runwire.client import Client

Document = BaseModel | Sequence[BaseModel | dict[str, Any]] | dict[str, Any]
W = TypeVar("W", bound=Callable[..., Any])

_PATIENCE_S = 10.0
"""How long a command waits for a gateway that does not answer; a script may call it again."""
_DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="RUNWIRE_URL", help="The gateway; by default the one that `runwire up` started."),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--api-key", envvar="RUNWIRE_API_KEY", help="Needed unless the gateway is on this machine without keys."
    ),
]
Output = Literal["text", "json", "jsonl"]
Format = Annotated[
    Output, typer.Option("-o", "--output", help="text for people, json for the result, jsonl for each event or item.")
]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, help="How many, the newest first.")]
Agent = Annotated[str | None, typer.Option(help="An entry of the agents file.")]
Model = Annotated[str | None, typer.Option(help="LiteLLM's name of a model.")]


MAX_IDS_READ = 1000
NEWEST = "newest"
"""Stands for the newest id."""


@dataclass(frozen=True)
class Id:
    """Ids of one kind: `listed` yields what has them, the newest first, each with its id in `field`.

    `is_chosen`: clients choose them, so that any text may be a whole one; the gateway says whether it knows it.
    """

    noun: str
    field: str
    listed: "Callable[[Client], AsyncIterator[BaseModel]]"
    is_chosen: bool = False

    async def whole(self, client: "Client", text: str) -> str:
        """Return the id that begins with a text; "newest" is the newest one.

        Raises NotFound where there is none, BadParameter where several begin with the text, and RunwireError. Only the
        newest are read: a text that begins none of them stays as it is where there are more.
        """
        if not text or is_whole(text):
            return text
        found: list[str] = []
        read = 0
        async for each in self.listed(client):
            read += 1
            name: str = getattr(each, self.field)
            if text in {name, NEWEST}:
                return name
            found += [name] if name.startswith(text) else []
        if not found and read < MAX_IDS_READ and (text == NEWEST or not self.is_chosen):
            begins = "" if text == NEWEST else f" with an id that begins with {text}"
            raise NotFound("not_found", f"there is no {self.noun}{begins}")
        if len(found) > 1:
            raise typer.BadParameter(f"{len(found)} {self.noun}s begin with {text}: {', '.join(found[:4])}")
        return found[0] if found else text


def is_whole(text: str) -> bool:
    """Whether a text is a whole id of a run or an artifact."""
    return ID.pattern.fullmatch(text) is not None


RUN = Id("run", "run_id", lambda client: client.list_runs(limit=MAX_IDS_READ))
SESSION = Id("session", "session_id", lambda client: client.sessions(limit=MAX_IDS_READ), is_chosen=True)
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Its id, or a beginning that no other has."), RUN]


class Noun(TyperGroup):
    """Commands on one noun, which alone lists: `runwire runs` is `runwire runs ls`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the command where only options of it are given."""
        is_bare = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["ls", *args] if is_bare and not ctx.resilient_parsing else args)


class Listing(TyperCommand):
    """A command that lists: `runwire sessions ls` is `runwire sessions`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leave the verb out."""
        return super().parse_args(ctx, args[1:] if args[:1] == ["ls"] else args)


@dataclass(frozen=True)
class Found:
    """What a command has found: `document` is printed for programs, `show` prints it for people."""

    document: Document
    show: Callable[[], None]
    code: int = 0

    def print(self, output: Output) -> int:
        """Print it and return the exit code."""
        document = to_jsonable_python(self.document, by_alias=False) if output != "text" else None
        if output == "text":
            self.show()
        else:
            for each in document if output == "jsonl" and isinstance(document, list) else [document]:
                print_json(each)
        return self.code


def table(found: Document, columns: list[str], rows: list[list[str]], nouns: str) -> Found:
    """A list, as a table for people. `nouns`: what an empty one has none of."""

    def show() -> None:
        if rows:
            print_table([columns, *rows])
        else:
            ERR.print(f"[dim]there are no {nouns}[/dim]")

    return Found(found, show)


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    expected: tuple[type[Exception], ...] = (),
    cls: type[TyperCommand] | None = None,
) -> Callable[[W], W]:
    """Register a function or coroutine function as a command, with -o where it returns what is `Found`.

    One whose first argument is `client` asks the gateway, with --url and --api-key. It is given the value of an option
    too for which it has an argument of this name; one that has `output` prints itself. `expected`: errors for people.
    """

    def register(work: W) -> W:
        signature = inspect.signature(work)
        own = dict(signature.parameters)
        asks = own.pop("client", None) is not None
        shared: dict[str, Any] = {"url": (Url, None), "api_key": (Key, None)} if asks else {}
        shared |= {"output": (Format, "text")} if signature.return_annotation is Found else {}
        added = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for option, (annotation, default) in shared.items()
            if option not in own
        ]

        async def answered(arguments: dict[str, Any], url: str | None, api_key: str | None) -> Any:
            async with client_of(url, api_key) as client:
                for argument, parameter in own.items():
                    for mark in getattr(parameter.annotation, "__metadata__", ()):
                        if isinstance(mark, Id) and arguments[argument] is not None:
                            arguments[argument] = await mark.whole(client, arguments[argument])
                return await work(client, **arguments)

        @functools.wraps(work)
        def run(**options: Any) -> None:
            arguments, output = {argument: options[argument] for argument in own}, options.get("output", "text")

            def code() -> int:
                found: Any = answered(arguments, options["url"], options["api_key"]) if asks else work(**arguments)
                found = asyncio.run(found) if inspect.iscoroutine(found) else found
                if isinstance(found, str):
                    sys.stdout.write(f"{found}\n")
                    return 0
                return found.print(output) if isinstance(found, Found) else int(found or 0)

            end(code, *expected, output=output)

        run.__signature__ = signature.replace(parameters=[*own.values(), *added])  # type: ignore[attr-defined]
        app.command(name, cls=cls)(run)
        return work

    return register


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


def _file() -> Path:
    return Path(typer.get_app_dir("runwire")) / "contexts.json"


def gateway_of(url: str | None, api_key: str | None = None) -> tuple[str, str | None]:
    """The gateway that the user named, by a context or a URL, and its key.

    Else it is that of the current context, of the data folder, or the default. Raises BadParameter.
    """
    name = NAMED.get()
    if name and url:
        raise typer.BadParameter("give a context or a URL (--url, RUNWIRE_URL), not both")
    contexts = Contexts.read() if name or not url else Contexts()
    if context := contexts.named(name) if name else contexts.known.get(contexts.current or ""):
        return context.url, context.api_key or api_key
    return url or remembered(data_dir()).get("url") or _DEFAULT_URL, api_key


def client_of(url: str | None, api_key: str | None) -> "Client":
    """A client of the gateway. Raises BadParameter."""
    from runwire.client import Client  # noqa: PLC0415, `serve` asks no gateway and starts in half the time without it

    return Client(*gateway_of(url, api_key), patience_s=_PATIENCE_S)


def given(**options: Any) -> dict[str, Any]:
    """The options that the user gave."""
    return {name: value for name, value in options.items() if value is not None}


def json_object(text: str, option: str) -> dict[str, Any]:
    """The JSON object of an option. Raises BadParameter."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"it is no JSON: {error}", param_hint=option) from None
    if not isinstance(found, dict):
        raise typer.BadParameter("it is no JSON object", param_hint=option)
    return found


_MARKS = {"ok": "[green]✓[/green]", "warning": "[yellow]![/yellow]", "failed": "[red]✗[/red]"}


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    status: Literal["ok", "warning", "failed"]
    finding: str
    mend: str = ""


def checklist(checks: Sequence[Check]) -> Found:
    """Findings, for people a line each and how to mend it. The exit code says whether any check has failed."""

    def show() -> None:
        for check in checks:
            OUT.print(f"{_MARKS[check.status]} {marked(one_line(f'{check.name}: {check.finding}'))}")
            if check.mend:
                OUT.print(f"  [dim]{marked(one_line(check.mend))}[/dim]")

    has_failed = any(check.status == "failed" for check in checks)
    return Found([asdict(check) for check in checks], show, Exit.FAILED if has_failed else 0)
