"""Heavy data through whole runs: it reaches people byte for byte, and neither the model nor any log."""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.msg import Msg

from contracts.wire import subjects
from services.messaging.connection import Bus
from tests.support.model_server import action, answer
from tests.support.stack import ROOT
from tests.system import evidence
from tests.system.artifact_tools import CANARIES, chart, noise_of, pdf, rows
from tests.system.deployment import Whole

DOCS = ROOT / "docs" / "artifacts.md"
KIB, MIB = 1 << 10, 1 << 20


async def log_bytes(whole: Whole, run: str) -> int:
    bus = await evidence.connect(whole.nats)
    try:
        return sum(
            len(message.data)
            for message in await (await bus.reader(subjects.RUNS)).messages(subjects.log("default", run))
        )
    finally:
        await bus.leave()


async def events_of(whole: Whole, run: str) -> list[dict[str, Any]]:
    bus: Bus = await evidence.connect(whole.nats)
    try:
        return [event for record in await evidence.records(bus, run) for event in record.events]
    finally:
        await bus.leave()


async def test_heavy_fields_reach_people_and_nobody_else(whole: Whole) -> None:
    """A chart of 70 KB, a list of 5 MB and a PDF, byte for byte; none of it in model requests, logs or streams."""
    run, payload = await whole.chat("Q-report", action("report"), answer("Here it is."))
    found = payload["artifacts"]["report"]

    assert payload["raw_answer"] == "Here it is."
    assert found["chart"] == chart()
    assert json.loads(await whole.bytes_of(found["rows"])) == rows()
    assert await whole.bytes_of(found["pdf"]) == pdf()
    assert (found["rows"]["items"], found["pdf"]["mime_type"], found["small"]) == (
        20_000,
        "application/pdf",
        CANARIES["small"],
    )
    assert any("artifact rows of report has" in warning for warning in payload["warnings"])

    asked = whole.asked("Q-report")
    assert len(asked) == 2
    assert "<artifact:list size=20000 items>" in asked[1]
    assert not [name for name, canary in CANARIES.items() if any(canary in text for text in asked)]
    assert await log_bytes(whole, run) < 16 * KIB
    stored = [event for event in await events_of(whole, run) if event["type"] == "artifact_stored"]
    assert {event["field"]: event["artifact_id"] for event in stored} == {
        "chart": (await whole.http.get(f"/v1/runs/{run}?artifacts=refs")).json()["payload"]["artifacts"]["report"][
            "chart"
        ]["artifact_id"],
        "rows": found["rows"]["artifact_id"],
        "pdf": found["pdf"]["artifact_id"],
    }
    listed = (await whole.http.get(f"/v1/runs/{run}/artifacts")).json()["artifacts"]
    assert {each["ref"]["artifact_id"] for each in listed} == {event["artifact_id"] for event in stored}

    left = [
        *whole.stack.folder.glob("*.log"),
        whole.nats.log,
        *(path for path in whole.nats.store.rglob("*") if path.is_file()),
    ]
    assert len(left) > 10
    forms = {
        name: (canary.encode(), base64.b64encode(canary.encode()[:21]))
        for name, canary in CANARIES.items()
        if name != "small"
    }
    leaks = [
        (path.name, name)
        for path in left
        for name, known in forms.items()
        if any(form in path.read_bytes() for form in known)
    ]
    assert not leaks
    assert not [
        path.name for path in whole.stack.folder.glob("*.log") if CANARIES["small"].encode() in path.read_bytes()
    ]


async def test_values_come_back_where_a_join_wants_them(whole: Whole) -> None:
    """The log names references; the tool gets the whole results."""
    plan = action(
        "plan",
        steps=[{"node": "plot", "args": {}}, {"node": "essay", "args": {"characters": 50_000}}],
        join={"node": "fingerprint", "inject": {"results": "$results"}},
    )
    run, _ = await whole.chat("Q-join", plan, answer("Joined."))
    joined = [event for event in await events_of(whole, run) if event["type"] == "observed"][-1]
    assert joined["status"] == "succeeded", joined["failure"]
    assert joined["observation"] == {
        "kinds": ["dict1", "str50000"],
        "digest": hashlib.sha256(str(chart()).encode()).hexdigest(),
    }
    assert await log_bytes(whole, run) < 16 * KIB


@pytest.mark.parametrize("away_s", [5, pytest.param(30, marks=[pytest.mark.chaos, pytest.mark.timeout(300)])])
async def test_an_s3_server_that_is_away_is_waited_for(whole: Whole, away_s: int) -> None:
    """Answers in text still come; calls with artifacts wait, and then succeed; nothing is lost."""
    name = f"Q-away-{away_s}"
    before, _ = await whole.chat(f"{name}-before", action("noise", megabytes=1, seed=away_s), answer("Before."))
    whole.s3.kill()
    try:
        left_at = time.monotonic()
        plotting = [await whole.begin(f"{name}-{number}", action("plot"), answer("Plotted.")) for number in range(3)]
        large = await whole.begin(f"{name}-large", action("noise", megabytes=8, seed=100 + away_s), answer("Noise."))
        waiting = [*plotting, large]
        while time.monotonic() < left_at + away_s:
            _, text = await whole.chat(
                f"{name}-text-{time.monotonic_ns()}", action("essay", characters=100), answer("Words.")
            )
            assert text["raw_answer"] == "Words."
            await asyncio.sleep(0.5)
        assert {(await whole.status(run))["status"] for run in waiting} == {"running"}
    finally:
        whole.s3.start()
    ends = [await whole.ended(run) for run in waiting]
    assert [end["status"] for end in ends] == ["done"] * 4
    assert all(end["payload"]["artifacts"]["plot"]["chart"] == chart() for end in ends[:3])
    assert await whole.bytes_of(ends[3]["payload"]["artifacts"]["noise"]["blob"]) == noise_of(8, 100 + away_s)
    (kept,) = await whole.listed(before)
    assert await whole.bytes_of({"artifact_id": kept}) == noise_of(1, away_s)


@contextlib.asynccontextmanager
async def uploading(whole: Whole) -> AsyncIterator[asyncio.Event]:
    """Set once the third chunk of an upload is on its way, of a good dozen."""
    under_way, seen = asyncio.Event(), 0

    async def count(_: Msg) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            under_way.set()

    bus = await evidence.connect(whole.nats)
    try:
        await bus.nc.subscribe("artifact.chunk.*", cb=count)
        await bus.barrier()
        yield under_way
    finally:
        await bus.leave()


@pytest.mark.sample(1)
@pytest.mark.parametrize("victim", ["artifact_store-1", "s3", "tool_runner-1"])
async def test_a_kill_in_mid_upload_leaves_no_reference_without_bytes(whole: Whole, victim: str) -> None:
    """Whoever dies: the call sends its result again and succeeds, and there is one reference, with all its bytes."""
    seed = len(victim)
    async with uploading(whole) as under_way:
        run = await whole.begin(f"Q-kill-{victim}", action("noise", megabytes=32, seed=seed), answer("Noise."))
        await asyncio.wait_for(under_way.wait(), 60)
        if victim == "s3":
            whole.s3.kill()
        else:
            whole.stack.kill(victim)
    stored = [event for event in await events_of(whole, run) if event["type"] in {"artifact_stored", "observed"}]
    assert not stored, "the blow came too late"
    whole.s3.start()
    whole.stack.mend()

    end = await whole.ended(run, timeout=90)
    ref = end["payload"]["artifacts"]["noise"]["blob"]
    assert end["status"] == "done"
    assert await whole.listed(run) == [ref["artifact_id"]]
    assert await whole.bytes_of(ref) == noise_of(32, seed)


async def test_the_snippet_of_the_docs_finds_a_chart(whole: Whole) -> None:
    """What docs/artifacts.md hands to ECharts is an option with series."""
    tool, field = re.findall(r"setOption\(payload\.artifacts\.(\w+)\.(\w+)\)", DOCS.read_text(encoding="utf-8"))[0]
    question = "Which region grew most in sales.csv?"
    _, payload = await whole.chat("Q-docs", action(tool, question=question), answer("See the chart."))
    option = payload["artifacts"][tool][field]
    assert option["series"]
    assert all(series["type"] for series in option["series"])
    assert {"xAxis", "yAxis"} <= option.keys()
