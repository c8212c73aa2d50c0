"""Heavy data through whole runs: it reaches people byte for byte, and neither the model nor any log."""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.msg import Msg

from contracts.wire import subjects
from tests.support.model_server import action, answer
from tests.support.stack import ROOT
from tests.support.waiting import wait_until
from tests.system import evidence
from tests.system.artifact_tools import CANARIES, chart, noise_of, pdf, rows
from tests.system.deployment import Whole

DOCS = ROOT / "docs" / "artifacts.md"
KIB, MIB = 1 << 10, 1 << 20


async def log_bytes(whole: Whole, run: str) -> int:
    async with evidence.connected(whole.nats) as bus:
        stored = await (await bus.reader(subjects.RUNS)).read(subjects.log("default", run))
    return sum(len(data) for _, data in stored)


async def events_of(whole: Whole, run: str) -> list[dict[str, Any]]:
    async with evidence.connected(whole.nats) as bus:
        return [event for record in await evidence.records(bus, run) for event in record.events]


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


async def test_an_s3_server_that_is_away_is_waited_for(whole: Whole) -> None:
    """A call with an artifact waits, and then succeeds; answers in text come meanwhile."""
    whole.s3.kill()
    try:
        waiting = await whole.begin("Q-away", action("plot"), answer("Plotted."))
        _, text = await whole.chat("Q-text", action("essay", characters=100), answer("Words."))
        assert text["raw_answer"] == "Words."
        await wait_until(lambda: not whole.stack.is_ready("artifact_store-1"), what="the store has noticed")
        assert (await whole.status(waiting))["status"] == "running"
    finally:
        whole.s3.start()
    assert (await whole.ended(waiting))["payload"]["artifacts"]["plot"]["chart"] == chart()


@contextlib.asynccontextmanager
async def uploading(whole: Whole) -> AsyncIterator[asyncio.Event]:
    """Set once the third chunk of an upload is on its way, of a good dozen."""
    under_way, seen = asyncio.Event(), 0

    async def count(_: Msg) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            under_way.set()

    async with evidence.connected(whole.nats) as bus:
        await bus.nc.subscribe("artifact.chunk.*", cb=count)
        await bus.barrier()
        yield under_way


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
