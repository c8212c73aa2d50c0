"""A whole system: nats-server, every service twice, tools, and a model whose script is in the query."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from contracts.sessions.proposals import APPLY_TOOL, CHECK_TOOL
from contracts.wire import subjects
from services.tables.database import Database
from tests.support.nats_server import NatsServer
from tests.support.nats_tap import NatsTap
from tests.support.stack import Stack
from tests.support.waiting import wait_until_blocking
from tests.system import executions
from tests.system.model import PlannedModel
from tests.system.traces import Execution
from tests.tables.conftest import Tables

_TAPPED = ("planner", "tool_runner")
_OF_TABLES = ("gateway", "tables")
TOOLS = Path(__file__).parent / "tools.py"


@dataclass
class System:
    """Everything that a test may look at, kill and freeze."""

    nats: NatsServer
    stack: Stack
    model: PlannedModel
    ledger: Path
    taps: dict[str, NatsTap] = field(default_factory=dict)
    """Process -> what it sends to NATS, where that is watched."""
    folder: Path = Path()
    """Where the tables service has its database."""

    def tables(self) -> Tables:
        """The tools of the tables, over the same database, as the default tenant calls them."""
        return Tables(Database(f"sqlite:///{self.folder / 'tables.db'}"), subjects.DEFAULT_TENANT)

    def executions(self, run: str, call: str = "") -> list[Execution]:
        """What the tools have begun for a run, or for one call of it."""
        return [each for each in executions.read(self.ledger) if each.key.startswith(f"{run}.{call}")]

    def planner_of(self, authorization: str) -> str:
        """The name of the planner that asked the model with this header."""
        return authorization.removeprefix("Bearer ")


@contextmanager
def planned(
    folder: Path,
    *,
    gateways: int = 1,
    env: dict[str, str] | None = None,
    tapped: bool = False,
    tables: bool = False,
    tools: Path | None = TOOLS,
    also: Callable[[Stack, Path], None] | None = None,
    model: type[PlannedModel] = PlannedModel,
) -> Iterator[System]:
    """Start it, and return once all of it is ready.

    Args:
        folder: for everything that it writes.
        gateways: how many.
        env: for every process.
        tapped: whether to watch what planners and tool runners send to NATS; with tables, they and gateways too.
        tables: whether the tables service is there.
        tools: the file with the tools that are served.
        also: plans more processes; it gets the ledger.
        model: the provider.
    """
    nats = NatsServer(folder / "nats", identities=True)
    book = folder / "ledger"
    nats.start()
    try:
        with model() as provider:
            own = {
                **provider.env,
                executions.LEDGER: str(book),
                "RUNWIRE_MAX_RESULT_BYTES": str(6 << 20),
                **(env or {}),
            }
            stack = Stack(nats.url, folder / "stack", env=own, tools=tools, gateways=gateways, passwords=nats.passwords)
            if also is not None:
                also(stack, book)
            if tables:
                stack.add("tables-1", "-m", "services.tables", sign=b"serving ")
                stack.parts["tables-1"].env["RUNWIRE_DATA_DIR"] = str(folder)
            for name in stack.names("planner"):
                stack.parts[name].env["OPENAI_API_KEY"] = name  # So that the model's ledger tells who asked.
            kinds = (*_TAPPED, *_OF_TABLES) if tables else _TAPPED
            taps = {name: NatsTap(nats.port) for kind in kinds if tapped for name in stack.names(kind)}
            for name, tap in taps.items():
                stack.parts[name].env["RUNWIRE_NATS_URL"] = tap.url
            with stack:
                for url in map(stack.url_of, stack.names("gateway")):
                    wait_until_blocking(partial(_offers, url, _served(stack)), what="all tools are offered")
                yield System(nats, stack, provider, book, taps, folder)
            for tap in taps.values():
                tap.close()
    finally:
        nats.kill()


def _served(stack: Stack) -> set[str]:
    """The names of the tools that the processes of a system say they serve."""
    said = [re.findall(r"\bserving (.+)", stack.tail_of(name)) for name in stack.parts if stack.parts[name].sign]
    return {name for names in said for name in names[-1].split(", ")}


def _offers(url: str, names: set[str]) -> bool:
    offered = {spec["name"] for spec in httpx.get(f"{url}/v1/tools", trust_env=False).json()["tools"]}
    return names - {APPLY_TOOL, CHECK_TOOL} <= offered  # These two are hidden.
