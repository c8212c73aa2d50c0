"""Decisions about pauses, and inputs: what reaches the planner, and how its answer becomes one of HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from contracts.runs.events import ControlAnswered, InputAdded, Paused, Resumed
from contracts.runs.inbox import INBOX_MESSAGE, InputRequested, ResumeRequested, TopUpRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.gateway.runs import messages
from services.messaging.connection import Bus
from tests.support.gateways import Served, Writer, paused
from tests.support.images import data_url, drawn, encoded
from tests.support.stores import Store
from tests.support.waiting import wait_until

Asked = ResumeRequested | InputRequested | TopUpRequested
PAUSE = f"{1:032x}"
PNG = data_url(encoded(drawn(), "png"), "image/png")
DECISION = {"pause_id": PAUSE, "token": f"{PAUSE}.1.{'0' * 32}", "decision": "approve"}


async def asked(bus: Bus, run: str) -> list[Asked]:
    """What waits for the planner."""
    stored = await (await bus.reader(subjects.INBOX)).read(f"control.default.{run}.*")
    found = [INBOX_MESSAGE.validate_json(data) for _, data in stored]
    return [each for each in found if isinstance(each, Asked)]


class Answering:
    """Answers each request once, as a planner does. `answer`: what it writes."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.seen: list[Asked] = []
        self.answer: Callable[[Asked], Any] = lambda message: ControlAnswered(id=message.id)

    def answer_first(self, answer: Callable[[Asked], Any]) -> None:
        """Let the first request have this answer, and each other one be a repetition."""
        self.answer = lambda message: (
            answer(message) if len(self.seen) == 1 else ControlAnswered(id=message.id, is_repeated=True)
        )

    async def work(self) -> None:
        while True:
            for message in (await asked(self._writer.bus, self._writer.run))[len(self.seen) :]:
                self.seen.append(message)
                event = self.answer(message)
                if isinstance(event, ControlAnswered):
                    await self._writer.stream(event)
                elif event is not None:
                    await self._writer.log(event)
            await asyncio.sleep(0.02)


@pytest.fixture
async def planner(writer: Writer) -> AsyncIterator[Answering]:
    """Answers the requests to a run that has begun and is paused."""
    await writer.open()
    await writer.log(paused("1-1", 1))
    answering = Answering(writer)
    task = asyncio.create_task(answering.work())
    yield answering
    task.cancel()


def keyed(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key} if key else {}


async def resume(served: Served, run: str, key: str | None = None, **more: Any) -> httpx.Response:
    return await served.http.post(f"/v1/runs/{run}/resume", json={**DECISION, **more}, headers=keyed(key))


async def add(served: Served, run: str, key: str | None = None, **body: Any) -> httpx.Response:
    return await served.http.post(f"/v1/runs/{run}/input", json=body, headers=keyed(key))


def resumed(message: Asked) -> Resumed:
    assert isinstance(message, ResumeRequested)
    return Resumed(
        pause_id=message.pause_id, decision=message.decision, id=message.id, request_sha256=message.request_sha256
    )


def added(message: Asked) -> InputAdded:
    assert isinstance(message, InputRequested)
    return InputAdded(id=message.id, text=message.text, redirect=message.redirect)


@pytest.mark.parametrize("answer", [resumed, lambda message: ControlAnswered(id=message.id)])
async def test_a_decision_is_answered_once_it_took_effect(
    served: Served, writer: Writer, planner: Answering, answer: Callable[[Asked], Any]
) -> None:
    """By the fact on the log or by the answer on the stream, whichever comes first."""
    planner.answer = answer
    answered = await resume(served, writer.run, note="fine", args=None)
    assert answered.status_code == 200, answered.text
    assert answered.json() == {"run_id": writer.run, "pause_id": PAUSE, "decision": "approve"}
    (message,) = planner.seen
    assert isinstance(message, ResumeRequested)
    assert (message.pause_id, message.token, message.note) == (PAUSE, DECISION["token"], "fine")


def refusal(code: Any) -> Callable[[Asked], ControlAnswered]:
    return lambda message: ControlAnswered(id=message.id, code=code, reason="because of that")


async def test_a_refused_decision_says_why(served: Served, writer: Writer, planner: Answering) -> None:
    """With the reason; a token that is not that of the pause, with what waits now."""
    codes = ("pause_closed", "pause_changed", "run_ended", "idempotency_conflict", "of_another_version")
    for code, status in (*((code, 409) for code in codes), ("invalid_decision", 422), ("invalid_input", 422)):
        planner.answer = refusal(code)
        refused = await resume(served, writer.run)
        assert (refused.status_code, refused.json()["code"]) == (status, code)
        assert "because of that" in refused.text or code == "idempotency_conflict"
        if code == "pause_changed":
            assert [pause["pause_id"] for pause in refused.json()["pauses"]] == [PAUSE]


async def test_an_unknown_pause_is_as_unknown_as_an_unknown_run(
    served: Served, writer: Writer, planner: Answering
) -> None:
    """The same bytes."""
    planner.answer = refusal("not_found")
    unknown, missing = await resume(served, writer.run), await resume(served, new_id())
    assert (unknown.status_code, unknown.content) == (404, missing.content)


async def test_the_same_key_gets_the_first_answer(served: Served, writer: Writer, planner: Answering) -> None:
    """Also after the run has ended; another body under it is a conflict."""
    planner.answer_first(resumed)
    first, again = await resume(served, writer.run, "k"), await resume(served, writer.run, "k")
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert len({message.id for message in planner.seen}) == 1
    assert (await resume(served, writer.run, "k", note="else")).json()["code"] == "idempotency_conflict"
    await writer.done()
    assert (await resume(served, writer.run, "k")).content == first.content
    assert (await resume(served, writer.run, "k", note="else")).json()["code"] == "idempotency_conflict"
    for answer in (await resume(served, writer.run), await resume(served, writer.run, "another")):
        assert (answer.status_code, answer.json()["code"]) == (409, "run_ended")


async def test_an_input_has_a_place_in_the_log(served: Served, writer: Writer, planner: Answering) -> None:
    """200 with its id. One that is repeated under its key counts once."""
    planner.answer_first(added)
    first = await add(served, writer.run, "k", text="also in June", redirect=True)
    assert first.status_code == 200
    assert first.json() == {"run_id": writer.run, "input_id": planner.seen[0].id}
    assert (await add(served, writer.run, "k", text="also in June", redirect=True)).content == first.content
    conflict = await add(served, writer.run, "k", text="not in June")
    assert (conflict.status_code, conflict.json()["code"]) == (409, "idempotency_conflict")


@pytest.mark.parametrize("fact", [{"note": "no"}, {"input": "no"}, {"input": {"city": "no"}}])
async def test_a_text_that_has_decided_is_known_by_its_key(
    served: Served, writer: Writer, planner: Answering, fact: dict[str, Any]
) -> None:
    """Another text under it is a conflict."""
    decision: Any = "reject" if "note" in fact else "answer"
    planner.answer_first(lambda message: Resumed(pause_id=PAUSE, decision=decision, id=message.id, **fact))
    assert (await add(served, writer.run, "k", text="no")).status_code == 200
    assert (await add(served, writer.run, "k", text="no")).status_code == 200
    assert (await add(served, writer.run, "k", text="yes")).json()["code"] == "idempotency_conflict"


async def test_a_run_with_64_unread_inputs_takes_no_more(served: Served, writer: Writer, planner: Answering) -> None:
    """429 with the time to wait. The requests at the same time share one subscription."""
    planner.answer = lambda message: (
        added(message) if len(planner.seen) <= 64 else ControlAnswered(id=message.id, code="too_many_inputs")
    )
    before = len(served.parts.bus.nc._subs)
    most = before
    adding = [asyncio.create_task(add(served, writer.run, text=str(number))) for number in range(90)]
    while not all(task.done() for task in adding):
        most = max(most, len(served.parts.bus.nc._subs))
        await asyncio.sleep(0.01)
    answers = [task.result() for task in adding]
    assert sorted(answer.status_code for answer in answers) == [200] * 64 + [429] * 26
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert (refused.json()["code"], int(refused.headers["retry-after"]) > 0) == ("too_many_inputs", True)
    assert most <= before + 3
    await wait_until(lambda: len(served.parts.bus.nc._subs) <= before + 2, what="only readers are left")


async def test_without_an_answer_the_request_is_accepted(
    served: Served, writer: Writer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """202: it is stored, and its fact is looked up once more, since a live record may be lost."""
    monkeypatch.setattr(messages, "ANSWER_WAIT_S", 0.2)
    await writer.open()
    assert (await resume(served, writer.run)).status_code == 202
    assert (await add(served, writer.run, "k", text="x")).status_code == 202
    inputs = [message for message in await asked(bus, writer.run) if isinstance(message, InputRequested)]
    await writer.log(added(inputs[0]))
    assert (await add(served, writer.run, "k", text="x")).status_code == 200


async def test_what_has_another_form_or_size_is_refused(served: Served, writer: Writer, bus: Bus) -> None:
    """Nothing reaches the planner. An input is a text or an image; a text that no record has room for is 413."""
    await writer.open()
    wrong = ({"decision": "maybe"}, {"pause_id": "x"}, {"tokens": ""}, {"note": "x" * 4001})
    for body in ({}, *({**DECISION, **each} for each in wrong)):
        refused = await served.http.post(f"/v1/runs/{writer.run}/resume", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input"), body
    for body in ({}, {"text": " "}, {"txt": "x"}, {"text": "x", "redirect": "yes"}):
        assert (await add(served, writer.run, **body)).status_code == 422
    large = await resume(served, writer.run, decision="answer", input="x" * 600_000)
    assert (large.status_code, large.json()["code"]) == (413, "body_too_large")
    assert await asked(bus, writer.run) == []
    assert (await add(served, new_id(), text="x")).status_code == 404


async def test_images_are_stored_before_the_planner_hears_of_them(
    served: Served, writer: Writer, store: Store, planner: Answering
) -> None:
    """As those of a question: cleaned, and under an id that follows from the run."""
    assert store.tenant == "default"
    answered = await add(served, writer.run, images=[{"data": PNG}])
    assert answered.status_code == 200, answered.text
    assert (await resume(served, writer.run, images=[{"data": PNG}])).status_code == 200
    (first,), (second,) = [message.images for message in planner.seen if not isinstance(message, TopUpRequested)]
    await resume(served, writer.run, token="of something else", images=[{"data": PNG}])
    last = planner.seen[-1]
    assert isinstance(last, ResumeRequested)
    assert last.images == [], "nothing is stored for a decision that is refused"
    assert first.artifact_id == second.artifact_id
    assert (await served.http.get(f"/v1/artifacts/{first.artifact_id}")).headers["content-type"] == "image/png"


async def top_up(served: Served, run: str, body: Any, key: str | None = None) -> tuple[int, dict[str, Any]]:
    """Ask for it; the status and the answer."""
    answer = await served.http.post(f"/v1/runs/{run}/top-up", json=body, headers=keyed(key))
    return answer.status_code, answer.json()


async def test_a_top_up_is_stored_for_the_planner(served: Served, bus: Bus, writer: Writer) -> None:
    """Only what the caller set; each request counts, but under one key once: the planner knows it by its id."""
    await writer.open()
    body = {"limits": {"max_steps": 5, "max_tokens": None, "max_parallel": None}}
    for key in (None, None, "again", "again"):
        status, answer = await top_up(served, writer.run, body, key)
        assert (status, answer["status"]) == (202, "running")
    found = [each for each in await asked(bus, writer.run) if isinstance(each, TopUpRequested)]
    assert {repr(each.limits) for each in found} == {repr({"max_steps": 5, "max_tokens": None})}
    assert len({each.id for each in found}) == 3


async def test_a_paused_run_names_its_budget(served: Served, writer: Writer) -> None:
    """While it is paused, and no longer."""
    await writer.open()
    assert (await served.http.get(f"/v1/runs/{writer.run}")).json()["paused"] is None
    await writer.log(Paused(budget="max_steps of 2", until=2_000_000_000_000))
    found = (await served.http.get(f"/v1/runs/{writer.run}")).json()
    assert (found["status"], found["waits"], found["paused"]) == ("running", "paused", "max_steps of 2")
    await writer.done()
    assert (await served.http.get(f"/v1/runs/{writer.run}")).json()["paused"] is None


async def test_an_invalid_top_up_is_refused(served: Served, bus: Bus, writer: Writer) -> None:
    """Nothing reaches the planner."""
    await writer.open()
    limits: list[Any] = [{}, {"max_steps": 0}, {"max_steps": "5"}, {"steps": 5}, None]
    for body in ({}, [], {"max_steps": 5}, *({"limits": each} for each in limits)):
        status, answer = await top_up(served, writer.run, body)
        assert (status, answer["code"]) == (422, "invalid_input"), body
    assert await asked(bus, writer.run) == []


async def test_only_a_run_that_goes_on_can_be_topped_up(served: Served, bus: Bus, writer: Writer) -> None:
    """Neither one that has not begun nor one that has ended; an unknown one is unknown."""
    queued = (await served.http.post("/v1/runs", json={"query": "x"})).json()["run_id"]
    await writer.open()
    await writer.done()
    for run in (queued, writer.run):
        status, answer = await top_up(served, run, {"limits": {"max_steps": 5}})
        assert (status, answer["code"]) == (409, "not_running")
        assert await asked(bus, run) == []
    assert (await top_up(served, new_id(), {"limits": {"max_steps": 5}}))[0] == 404
