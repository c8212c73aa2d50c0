"""Proposals over HTTP: what becomes of them, whoever decides, and however often."""

import asyncio
from typing import Any

import pytest

from contracts.runs.events import PayloadProposed
from contracts.wire import subjects
from contracts.wire.faults import Fault
from contracts.wire.names import new_id, own_session_id
from contracts.wire.operation import DEMO_MODEL
from contracts.wire.records import Record
from services.messaging import dead_letters
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.planner.logs.offload import Offloader
from tests.gateway.tables.conftest import CREATE, KEYS, TENANT, World
from tests.support import stores
from tests.support.gateways import bearer
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.waiting import wait_until


async def test_two_of_three_are_applied_once(world: World) -> None:
    """A repeated apply gives the same, another choice is refused, and the session has the counts."""
    proposal = await world.proposed({"operations": world.three()})
    status, shown = await world.ask(proposal)
    assert (status, shown["state"]) == (200, "pending")
    assert [each["status"] for each in shown["verdicts"]] == ["accepted"] * 3
    assert shown["view"]["action_bar"]["apply_label"] == "Apply All 3"
    status, done = await world.ask(proposal, "apply", operations=[0, 1])
    assert (status, done["state"], done["report"]["applied"], done["report"]["failed"]) == (200, "applied", 2, 0)
    assert [each["status"] for each in done["verdicts"]] == ["applied", "applied"]
    assert done["view"]["names"] == {each: name for name, each in world.ids.items()}
    assert await world.ask(proposal, "apply", operations=[1, 0]) == (200, done)
    assert await world.ask(proposal) == (200, done)
    status, refused = await world.ask(proposal, "apply")
    assert (status, refused["code"], refused["state"]) == (409, "proposal_closed", "applied")
    assert await world.rows() == [("Acme", "Talk", None), ("Beta", "Talk", 5), ("Core", "No", None)]
    assert world.calls.count("apply_proposal") == 1


REFUSED, DONE = ("failed", "row_changed"), ("applied", None)
CHANGED: list[tuple[int, dict[str, Any], list[tuple[str, str | None]], tuple[Any, ...]]] = [
    (1, {"Stage": "No"}, [REFUSED, DONE, DONE], ("Acme", "No", None)),
    (1, {"Pay": 9}, [DONE, DONE, DONE], ("Acme", "Talk", 9)),
    (3, {"Stage": "Sent"}, [DONE, DONE, REFUSED], ("Acme", "Talk", None)),
]
"""A person's change of a row, what becomes of the three operations, and the first row."""


async def test_what_a_person_changed_meanwhile_is_not_overwritten(world: World) -> None:
    """Of each operation it is said before the apply and after it; the others go through."""
    for row, changes, verdicts, first in CHANGED:
        await world.fresh()
        proposal = await world.proposed({"operations": world.three()})
        await world.call("update_row", table_id=world.table["table_id"], row_id=row, changes=changes)
        shown = (await world.ask(proposal))[1]
        accepted = {"accepted": "applied"}
        assert [(accepted.get(each["status"], "failed"), each.get("code")) for each in shown["verdicts"]] == verdicts
        done = (await world.ask(proposal, "apply"))[1]
        assert [(each["status"], each.get("code")) for each in done["verdicts"]] == verdicts
        failed = verdicts.count(REFUSED)
        assert (done["report"]["applied"], done["report"]["failed"]) == (3 - failed, failed)
        assert [each["code"] for each in done["report"]["refused"]] == ["row_changed"] * failed
        assert (await world.rows())[0] == first


async def test_a_lost_answer_doubles_nothing(world: World) -> None:
    """The same choice at once and again, by several clients: one run, one answer."""
    adds = [{"action": "add", "data": {world.ids["Company"]: f"New {each}"}} for each in "AB"]
    proposal = await world.proposed({"operations": adds})
    lost = asyncio.create_task(world.ask(proposal, "apply"))
    world.gate.clear()
    await wait_until(lambda: "apply_proposal" in world.calls, what="the tool is called")
    lost.cancel()
    others = [asyncio.create_task(world.ask(proposal, "apply")) for _ in range(3)]
    world.gate.set()
    answers = await asyncio.gather(*others)
    assert [answers[0]] * 3 == answers
    assert (answers[0][0], answers[0][1]["report"]["applied"]) == (200, 2)
    assert (len(await world.rows()), world.calls.count("apply_proposal")) == (5, 1)


async def test_an_apply_that_goes_on_is_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the wait the answer is 202; a reload finds it, and nobody else decides meanwhile, nor a message."""
    proposal = await world.proposed({"operations": world.three()})
    world.gate.clear()
    first = asyncio.create_task(world.ask(proposal, "apply"))
    await wait_until(lambda: "apply_proposal" in world.calls, what="the tool is called")
    monkeypatch.setattr("services.gateway.tables.proposals.WAIT_S", 0.1)
    status, shown = await world.ask(proposal, "apply")
    assert (status, shown["state"]) == (202, "applying")
    bar = (await world.ask(proposal))[1]["view"]["action_bar"]
    assert (bar["apply_label"], bar["apply_enabled"], bar["dismiss_enabled"]) == ("Apply All 3", False, False)
    other: list[tuple[str, dict[str, Any]]] = [("apply", {"operations": [0]}), ("dismiss", {})]
    for verb, body in other:
        status, refused = await world.ask(proposal, verb, **body)
        assert (status, refused["code"], refused["state"]) == (409, "proposal_applying", "applying")
    await world.say(proposal)
    world.gate.set()
    status, done = await first
    assert (status, done["view"]["toast"]) == (200, "All 3 changes applied")


async def test_a_new_message_supersedes(world: World) -> None:
    """Unless it keeps the proposal: then that can still be dismissed, once, and no more applied."""
    kept: list[tuple[dict[str, Any], str, str]]
    kept = [({}, "superseded", "superseded"), ({"keep_proposal": True}, "pending", "dismissed")]
    for more, state, end in kept:
        proposal = await world.proposed({"operations": world.three()})
        await world.say(proposal, **more)
        assert (await world.ask(proposal))[1]["state"] == state
        if more:
            status, dismissed = await world.ask(proposal, "dismiss")
            assert (status, dismissed) == await world.ask(proposal, "dismiss")
            assert (status, dismissed["view"]["proposal_cleared"]) == (200, True)
        status, refused = await world.ask(proposal, "apply")
        assert (status, refused["code"], refused["state"]) == (409, "proposal_closed", end)
    assert [row[1] for row in await world.rows()] == ["Sent", "Talk", "No"]


async def test_what_is_no_operation_is_refused_by_its_number(world: World) -> None:
    """The numbers of the others stay, and a change of columns fails as a whole."""
    proposal = await world.proposed({"operations": [7, *world.three()]})
    done = (await world.ask(proposal, "apply", operations=[0, 3]))[1]
    assert [(each["index"], each["status"]) for each in done["verdicts"]] == [(0, "failed"), (3, "applied")]
    assert [row[0] for row in await world.rows()] == ["Acme", "Beta"]
    proposal = await world.proposed({**CREATE, "operations": [7, *CREATE["operations"]]}, "schema_proposal")
    assert (await world.ask(proposal))[0] == 200
    assert (await world.ask(proposal, "apply"))[1]["report"]["applied"] == 0


async def test_each_operation_says_why_it_cannot_be_applied(world: World) -> None:
    """Before the apply: of a change of columns, which is made as a whole, of a name that is taken, of a lost table."""
    operations = [{"action": "add", "column": {"name": "Note", "type": "text"}}, {"action": "remove", "column_id": "?"}]
    change = await world.proposed({"mode": "update", "operations": operations}, "schema_proposal")
    taken = await world.proposed({**CREATE, "table_name": world.table["name"]}, "schema_proposal")
    lost = await world.proposed({"operations": world.three()})

    async def codes(proposal: PayloadProposed) -> list[str]:
        return [each["code"] for each in (await world.ask(proposal))[1]["verdicts"]]

    assert (await codes(change), await codes(taken)) == (["column_id_unknown"] * 2, ["table_name_taken"] * 3)
    refused = (await world.ask(change, "apply"))[1]["report"]["refused"]
    assert [(each["index"], each["code"]) for each in refused] == [(1, "column_id_unknown")]
    await world.call("delete_table", table_id=world.table["table_id"])
    assert await codes(lost) == ["table_not_found"] * 3
    assert (await world.ask(lost))[1]["view"]["action_bar"]["apply_enabled"] is False


async def test_a_large_report_has_its_counts(world: World, own_nats_server: NatsServer, rclone: S3Server) -> None:
    """All outcomes are read from an artifact then."""
    added = {"action": "add", "data": {world.ids["Company"]: "New"}}
    proposal = await world.proposed({"operations": [*[{"action": "\u00e9" * 300}] * 150, added]})
    async with stores.serving(rclone, own_nats_server.url):
        status, done = await world.ask(proposal, "apply")
    assert (status, done["state"], done["report"]["applied"], done["report"]["failed"]) == (200, "applied", 1, 150)
    assert [each["status"] for each in done["verdicts"]] == ["failed"] * 150 + ["applied"]
    assert {each["code"] for each in done["report"]["refused"]} == {"action_unknown"}


@pytest.mark.parametrize("notes", [0, 40_000])
async def test_data_that_looks_like_a_reference_is_data(
    world: World, own_nats_server: NatsServer, rclone: S3Server, notes: int
) -> None:
    """Who knows the id of an artifact reads nothing of it by a proposal, of any size."""
    added = {"action": "add", "data": {world.ids["Company"]: "New"}, "notes": "x" * notes}
    data = {"operations": [added], "artifact_id": new_id(), "mime_type": "x", "size": 0, "sha256": "0" * 64}
    async with stores.serving(rclone, own_nats_server.url):
        proposal = PayloadProposed(payload_id=new_id(), kind="data_proposal", summary="", data=data)
        record = await Offloader(world.planner.bus).offloaded(Record(events=[proposal]), TENANT, new_id(), None)
        event = record.events[0]
        assert isinstance(event, PayloadProposed)
        assert (event.stored is None, event.data) == ((True, data) if not notes else (False, {}))
        logged = await world.proposed(event.data, stored=event.stored)
        assert (await world.ask(logged))[1]["data"] == data


async def test_a_new_table(world: World) -> None:
    """It is made as a whole, once, with its samples where they are wanted."""
    for with_samples, rows in ((False, 0), (True, 2)):
        proposal = await world.proposed({**CREATE, "table_name": f"With {rows}"}, "schema_proposal")
        shown = (await world.ask(proposal))[1]
        assert (shown["view"]["apply_label"], shown["verdicts"][0]["status"]) == ("Create Table", "accepted")
        assert (await world.ask(proposal, "apply", operations=[0]))[0] == 422
        done = (await world.ask(proposal, "apply", include_sample_rows=with_samples))[1]
        assert await world.ask(proposal, "apply", include_sample_rows=with_samples) == (200, done)
        made = await world.call("describe_table", table_id=done["report"]["table_id"])
        assert (made["name"], made["rows"], len(made["columns"])) == (f"With {rows}", rows, 3)


async def test_a_failed_apply_gives_the_proposal_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is the answer's; the next attempt is another run. So it is where nobody can read the run's request."""
    proposal, count = await world.proposed({"operations": world.three()}), dead_letters.count_start

    async def too_often(bus: Bus, delivery: Delivery) -> int:
        return 1_000 if delivery.stream == subjects.REQUESTS else await count(bus, delivery)

    monkeypatch.setattr(dead_letters, "count_start", too_often)
    status, refused = await world.ask(proposal, "apply")
    assert (status, "poisoned" in refused["detail"]) == (502, True), refused
    monkeypatch.setattr(dead_letters, "count_start", count)
    world.failures.append(Fault(code="tool_error", reason="it is away", tool_code="database_unavailable"))
    status, refused = await world.ask(proposal, "apply")
    assert (status, "database_unavailable" in refused["detail"] + refused["code"]) == (503, True), refused
    assert (await world.ask(proposal))[1]["state"] == "pending"
    status, done = await world.ask(proposal, "apply")
    assert (status, done["report"]["applied"]) == (200, 3)


async def test_who_may_decide(world: World) -> None:
    """A key without the right sees it; others do not."""
    proposal = await world.proposed({"operations": world.three()}, user_id="bob")
    for verb, of_reader in (("", 200), ("apply", 403), ("dismiss", 403)):
        for key, status in (("reads", of_reader), ("other", 404), ("ann", 404)):
            assert (await world.ask(proposal, verb, key=key))[0] == status
    assert (await world.ask(proposal, "apply", operations=[3]))[0] == 422
    for unknown in (new_id(), "x", own_session_id(new_id())):
        assert (await world.ask(unknown))[0] == 404
    assert (await world.ask(proposal))[1]["state"] == "pending"
    job = (await world.ask(proposal, "apply"))[1]["job"]
    run = (await world.get(f"/v1/runs/{job}")).json()
    assert (run["cause"], run["user_id"]) == ("call", "bob")


async def turn(world: World, query: str, page: dict[str, Any]) -> dict[str, Any]:
    """A chat turn of the demo model on a page of one session: its payload, with the run's id."""
    body = {"query": query, "strategy": "chat", "session_id": "jobs", "page": page, "model": DEMO_MODEL}
    asked = await world.served.http.post("/v1/runs", json=body, headers=bearer(KEYS["free"][0]))
    run = asked.json()["run_id"]
    await world.ended(run)
    return {"run_id": run, **(await world.get(f"/v1/runs/{run}")).json()["payload"]}


async def test_a_conversation_makes_a_table_and_fills_it(world: World) -> None:
    """From a description to rows, without a key: what is applied is in the database, and the next turn knows."""
    made = (await turn(world, "track my job applications", {"name": "tables_list"}))["extra"]["custom_payload"]
    shown = (await world.ask(made["id"]))[1]
    assert (shown["state"], shown["session_id"]) == ("pending", "jobs")
    table_id = (await world.ask(made["id"], "apply"))[1]["report"]["table_id"]
    page = {"name": "table_view", "table_id": table_id}
    proposed = await turn(world, "add three rows", page)
    assert "1 of 1" not in proposed["raw_answer"]
    assert "operations; 4 were applied, 0 failed" in proposed["raw_answer"]
    rows = proposed["extra"]["custom_payload"]
    applied = await world.ask(rows["id"], "apply", operations=[0, 2])
    assert applied == await world.ask(rows["id"], "apply", operations=[2, 0])
    page_of_rows = await world.call("query_rows", table_id=table_id)
    assert [row["cells"]["Company"] for row in page_of_rows["rows"]] == ["Company 1", "Company 3"]
    told = await turn(world, "What became of that?", page)
    assert "chose 2 of 3 operations; 2 were applied, 0 failed" in told["raw_answer"]
    assert told["extra"]["suggested_values"]
    late = await turn(world, "add two rows", page)
    listed = (await world.get("/v1/sessions/jobs")).json()["proposals"]
    assert [(each["proposal_id"], each["state"]) for each in listed] == [
        (late["extra"]["custom_payload"]["id"], "pending"),
        (rows["id"], "applied"),
        (made["id"], "applied"),
    ]
    await world.call("delete_table", table_id=table_id)
    status, done = await world.ask(late["extra"]["custom_payload"]["id"], "apply")
    assert (status, done["code"]) == (404, "table_not_found")
