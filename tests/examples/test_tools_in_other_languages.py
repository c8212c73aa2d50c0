"""The example tools in TypeScript and Go, as processes on a real server, asked as tool_runner asks.

Both keep the same promises.
"""

import itertools
import json
import math
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from services.shared.json_schema.checks import check_schema, complaints
from tests.examples.conftest import EXAMPLES, Running, Start, program
from tests.runwire.conftest import printed
from tests.runwire.serving.conftest import Caller, asking, call, discover
from tests.support.builds import INSTALL, build
from tests.support.nats_server import NatsServer
from tests.support.needs import needs_program
from tests.support.waiting import wait_until

# The limit covers the build, which counts for the first test.
pytestmark = pytest.mark.timeout(300)

CITIES = {
    "Berlin": (52.52, 13.405),
    "Lisbon": (38.722, -9.139),
    "Helsinki": (60.17, 24.941),
    "Rome": (41.903, 12.496),
    "Athens": (37.984, 23.728),
    "Paris": (48.857, 2.352),
    "Warsaw": (52.23, 21.012),
}
PLACES = [
    {"name": name, "latitude": latitude, "longitude": longitude} for name, (latitude, longitude) in CITIES.items()
]
MANY = [{"name": str(n), "latitude": (n * 37) % 80, "longitude": (n * 101) % 180} for n in range(40)]
BANK: dict[str, Any] = {"arrivals_per_s": 1.8, "service_s": 1, "servers": 2, "seed": 7}


@dataclass(frozen=True)
class Example:
    """A tool under test, and calls that it answers soon, in a while, after minutes, and never."""

    language: str
    name: str
    artifact: str
    short: dict[str, Any]
    a_while: dict[str, Any]
    endless: dict[str, Any]
    refused: dict[str, Any]
    refusal: str
    command: tuple[str, ...] = ()
    running: Running | None = None


TOOLS = [
    Example(
        language="typescript",
        name="plan_route",
        artifact="route",
        short={"places": PLACES},
        a_while={"places": MANY, "rounds": 400},
        endless={"places": MANY, "rounds": 1_000_000},
        refused={"places": [PLACES[0], PLACES[0], PLACES[1]]},
        refusal="two places have the same name",
    ),
    Example(
        language="go",
        name="simulate_queue",
        artifact="chart",
        short={**BANK, "customers": 50_000},
        a_while={**BANK, "customers": 10_000_000},
        endless={**BANK, "customers": 1_000_000_000},
        refused={**BANK, "servers": 1},
        refusal="at least 2 servers are needed",
    ),
]


@pytest.fixture(params=TOOLS, ids=lambda tool: tool.language)
async def example(request: pytest.FixtureRequest, start: Start, nats_server: NatsServer, client: Client) -> Example:
    """A tool that runs and has been discovered; a process of its own for every test."""
    example: Example = request.param
    command = program(request.getfixturevalue(example.language), example.name)
    running = await start(command, nats_server)
    await discover(client, example.name)
    return replace(example, command=tuple(command), running=running)


def shortest_round_trip() -> float:
    """Kilometres, by trying every order."""
    points = [(math.radians(latitude), math.radians(longitude)) for latitude, longitude in CITIES.values()]

    def distance(a: tuple[float, float], b: tuple[float, float]) -> float:
        angle = math.sin(a[0]) * math.sin(b[0]) + math.cos(a[0]) * math.cos(b[0]) * math.cos(a[1] - b[1])
        return 6371.0088 * math.acos(angle)

    start, *others = points
    ways = ([start, *order, start] for order in itertools.permutations(others))
    return min(sum(itertools.starmap(distance, itertools.pairwise(way))) for way in ways)


async def test_it_says_what_it_takes_and_gives(client: Client, example: Example) -> None:
    """The specification is in the metadata of a NATS micro service."""
    spec = await discover(client, example.name)
    assert spec.name == example.name
    assert spec.idempotent
    assert spec.output_schema is not None
    check_schema(spec.input_schema)
    check_schema(spec.output_schema)
    assert complaints(example.short, spec.input_schema) == []
    assert complaints({}, spec.input_schema) != []
    assert spec.output_schema["properties"][example.artifact]["artifact"] is True


async def test_it_answers_rightly_and_shows_its_artifact_grow(client: Client, example: Example) -> None:
    """First a sign of life, then numbered pieces, then one result that fits the schema.

    The result is the shortest of all round trips, or the wait that Erlang's formula gives.
    """
    spec = await discover(client, example.name)
    asked = await asking(client, example.name, example.short)
    kind, result = await asked.end()

    assert (kind, asked.kinds()[0]) == ("result", "heartbeat")
    assert asked.of("heartbeat")[0]["every_s"] > 0
    assert complaints(result, spec.output_schema or {}) == []
    pieces = asked.of("artifact_chunk")
    assert [piece["seq"] for piece in pieces] == list(range(len(pieces)))
    assert [piece["done"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1]["chunk"] == result[example.artifact]
    if example.language == "typescript":
        assert result["kilometres"] == pytest.approx(shortest_round_trip(), abs=0.1)
        assert result["order"][0] == "Berlin"
        assert set(result["order"]) == set(CITIES)
    else:
        assert result["figures"]["expected_wait_s"] == pytest.approx(4.263, abs=0.001)
        assert result["figures"]["mean_wait_s"] == pytest.approx(4.263, rel=0.25)


@pytest.mark.parametrize("off_s", [-3600, 3600])
async def test_it_works_by_the_clock_of_its_caller(off_s: int, client: Client, example: Example) -> None:
    """Whose clock is `off_s` from that of the tool. A request is declined if it is old, or if it may be, once."""

    async def kind_of(key: str, age_s: float = 0) -> str:
        sent = int((time.time() + off_s - age_s) * 1000)
        times = {"sent_at": sent, "start_by": sent + 10_000, "deadline_at": sent + 60_000}
        return (await call(client, example.name, example.short, key=key, understands_declined=True, **times))[0]

    assert await kind_of("first") == ("declined" if off_s < 0 else "result")
    kinds = [await kind_of("first"), await kind_of("second"), await kind_of("old", 30), await kind_of("third")]
    assert kinds == ["result", "result", "declined", "result"]


async def test_a_repeated_call_joins_the_one_in_flight(client: Client, example: Example) -> None:
    """Both are shown the same pieces, and what ends one ends the other: it ran once."""
    first = await asking(client, example.name, example.endless, "k")
    await first.first("artifact_chunk")
    second = await asking(client, example.name, example.endless, "k")
    await second.first("artifact_chunk")
    await first.query(f"tool.{example.name}.cancel", "k")

    assert await first.end() == await second.end()
    pieces = len(second.of("artifact_chunk"))
    assert first.of("artifact_chunk")[:pieces] == second.of("artifact_chunk")


async def test_only_the_copy_that_holds_a_call_answers_for_it(
    client: Client, example: Example, start: Start, nats_server: NatsServer
) -> None:
    """Nobody answers for an unknown call; for a known one its result comes."""
    copy = await start(list(example.command), nats_server)
    asked = await asking(client, example.name, example.endless, "k")
    await asked.first("heartbeat")
    await wait_until(lambda: copy.lines == [f"serving {example.name}"], timeout=20, what="the other copy served")

    unknown, known = [await Caller(client).start() for _ in range(2)]
    await unknown.query(f"tool.{example.name}.status", "no-such-call")
    await known.query(f"tool.{example.name}.status", "k")
    await known.first("heartbeat")
    await asked.query(f"tool.{example.name}.cancel", "k")

    assert await known.end() == await asked.end()
    # The same instances had received the other question before.
    assert unknown.replies == []


async def test_what_cannot_be_done_is_said_and_garbage_does_no_harm(client: Client, example: Example) -> None:
    """The reason tells the model what to do differently. The tool lives on."""
    kind, failure = await call(client, example.name, example.refused)
    assert (kind, failure["code"]) == ("failure", "tool_error")
    assert example.refusal in failure["reason"]
    for data in (b"", b"no json", b"{}", b"[]", b"null", b'{"idempotency_key": 7}'):
        for subject in ("status", "cancel"):
            await client.publish(f"tool.{example.name}.{subject}", data)
        assert json.loads((await client.request(f"tool.{example.name}", data)).data)["code"] == "bad_request"
    assert (await call(client, example.name, example.short))[0] == "result"


async def test_it_finishes_its_work_before_it_goes(client: Client, example: Example) -> None:
    """SIGTERM: no more calls are taken, those in flight are answered, the process ends well."""
    asked = await asking(client, example.name, example.a_while)
    await asked.first("heartbeat")
    assert example.running is not None
    example.running.process.send_signal(signal.SIGTERM)
    assert (await asked.end())[0] == "result"
    assert await example.running.ended() == 0


@pytest.mark.parametrize("folder", ["sdk/go", "examples/go", "new"])
def test_go_is_vetted_and_its_own_tests_pass(folder: str, go: list[str], tmp_path: Path) -> None:
    """`go vet` and `go test`, as a reader would run them, also of a project that `runwire new` makes."""
    assert go
    if folder == "new":
        printed("new", "tool", "words_in_go", "--lang", "go", data=tmp_path)
    here = tmp_path / "words_in_go" if folder == "new" else EXAMPLES.parent / folder
    command = str(needs_program("go"))
    build([command, "test", "-vet", "all", "./..."], here)
    formatted = subprocess.run(
        [str(needs_program("gofmt")), "-l", "."], cwd=here, capture_output=True, text=True, check=True
    )
    assert formatted.stdout == ""


async def test_the_tool_of_the_typescript_readme(
    typescript: list[str], start: Start, nats_server: NatsServer, client: Client
) -> None:
    """In ten lines, with a schema of zod."""
    await start(program(typescript, "count_words"), nats_server)
    spec = await discover(client, "count_words")
    assert spec.input_schema["properties"] == {"text": {"type": "string", "description": "any text"}}
    assert await call(client, "count_words", {"text": "to be or not to be"}) == ("result", {"words": 6})


def test_a_new_project_in_typescript_passes_its_test(tmp_path: Path) -> None:
    """`npm test`, as a reader would run it."""
    npm = str(needs_program("npm"))
    printed("new", "tool", "words_in_typescript", "--lang", "typescript", data=tmp_path)
    build([npm, *INSTALL], tmp_path / "words_in_typescript")
    build([npm, "test"], tmp_path / "words_in_typescript")
