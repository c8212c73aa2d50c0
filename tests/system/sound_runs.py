"""A session of runs in which nothing went wrong: three of the strategy `react`, and five with a plan."""

from typing import Any

from tests.system.model import Plan
from tests.system.traces import Event, Evidence, Execution, OpenRun, RunEvidence, StoredRecord

RUN, STOPPED, TAKEN_OVER = "0192f0c1a2b37c4d8e5f60718293a4b5", "f" * 32, "9" * 32
WHOLE, HALTED, REJECTED, DIRECT, LATE = "a" * 32, "b" * 32, "c" * 32, "d" * 32, "e" * 32
_ON_STREAM = {"chunk", "call_started"}
_PLANNED = {"type": "run_started", "strategy": "planned"}


def sound() -> Evidence:
    """Of both kinds."""
    executions = [
        Execution(f"{TAKEN_OVER}.1-1", 7, 131.1),
        Execution(f"{RUN}.1-1", 7, 102.1),
        Execution(f"{RUN}.1-2", 7, 102.1),
        Execution(f"{RUN}.1-2", 8, 102.5),
        Execution(f"{WHOLE}.1-0", 7, 102.1),
        Execution(f"{WHOLE}.1-1", 7, 103.1, f"{WHOLE}.1-0"),
        Execution(f"{WHOLE}.1-2", 7, 104.1, f"{WHOLE}.1-1"),
        Execution(f"{HALTED}.1-0", 7, 121.1),
        Execution(f"{HALTED}.1-1", 7, 122.1, f"{HALTED}.1-0"),
    ]
    return Evidence(
        [*_of_react(), *_planned()],
        executions,
        {"once": False, "often": True, "refuse": False},
        {"INBOX": 0},
        open_runs=[OpenRun(RUN, is_in_index=True, has_timer=True)],
        blows=[90.0],
    )


def _run(run_id: str, at: int, *records: list[Event], **facts: Any) -> RunEvidence:
    """A run whose records are stored one behind the other from `at` on, a second each, and were seen by its client."""
    stored = [
        StoredRecord(
            at + n, "stream" if {each["type"] for each in events} <= _ON_STREAM else "log", 100.0 + at + n, events
        )
        for n, events in enumerate(records)
    ]
    end = records[-1][-1]["type"]
    return RunEvidence(
        run_id, records=stored, seen=[("", each) for events in records for each in events], in_index=end, **facts
    )


def _asked(turn: int, attempt: int = 1, cause: str = "turn", **more: Any) -> Event:
    return {"type": "asked", "turn": turn, "attempt": attempt, "cause": cause, **more}


def _step(step: int = 1, status: str = "started", attempt: int = 1, **more: Any) -> Event:
    started = attempt if status == "started" else None
    return {"type": "step", "step": step, "status": status, "attempt": started, "calls": [], **more}


def _chunk(turn: int, text: str, *, attempt: int = 1, seq: int = 0, done: bool = True) -> Event:
    return {
        "type": "chunk",
        "action_seq": turn,
        "attempt": attempt,
        "seq": seq,
        "offset": seq,
        "text": text,
        "done": done,
    }


def _observed(call_id: str, status: str = "succeeded", observation: Any = None) -> Event:
    return {"type": "observed", "call_id": call_id, "status": status, "observation": observation}


def _done(answer: str, reason: str = "answer_complete", **more: Any) -> Event:
    return {"type": "done", "reason": reason, "raw_answer": answer, **more}


def _of_react() -> list[RunEvidence]:
    """One with a failed attempt, two calls and an answer in two chunks; one that its client cancelled.

    The third one has a direct call that was taken over, whose first planner has recorded the start afterwards, and an
    answer that is stored with its end.
    """
    once = {"call_id": "1-1", "tool": "once", "direct": "a" * 32}
    often = {"call_id": "1-1", "tool": "often", "direct": "a" * 32}
    started: Event = {"type": "run_started"}
    failed = {"type": "model_failed", "turn": 2, "attempt": 1, "next_model": "spare", "retry_at": 105_500}
    return [
        _run(
            RUN,
            1,
            [started, _asked(1)],
            [_step(calls=[once, {"call_id": "1-2", "tool": "often", "direct": None}])],
            [_observed("1-2")],
            [_observed("1-1"), _step(status="succeeded"), _asked(2)],
            [_chunk(2, "4", done=False)],
            [failed, _asked(2, 2, "provider", model="spare")],
            [_chunk(2, "4", attempt=2, done=False)],
            [_chunk(2, "2", attempt=2, seq=1)],
            [_step(2, attempt=2), _done("42", last_stream_seq=8)],
        ),
        _run(STOPPED, 20, [started, {"type": "cancelled"}], cancelled_by_client=True),
        _run(
            TAKEN_OVER,
            30,
            [started, _asked(1)],
            [_step(calls=[often])],
            [{"type": "called", "step": 1, "calls": [{**often, "direct": None}]}],
            [{"type": "call_started", "call_id": "1-1", "tool": "often"}],
            [_observed("1-1"), _asked(2)],
            [_chunk(2, "5"), _step(2), _done("5")],
        ),
    ]


def _planned() -> list[RunEvidence]:
    """A plan of three calls, one that its second call halts, a rejected one, a direct response, and one too late."""
    whole, halted, rejected, direct = (
        Plan(strategy="planned", turns=tuple((tool,) for tool in tools), tokens=1, wrong=wrong)
        for tools, wrong in (
            (("once", "once", "once"), ""),
            (("once", "refuse", "once"), ""),
            (("once", "once"), "$7.output.did"),
            ((), ""),
        )
    )
    plan = {"reasoning": "as asked", "calls": rejected.calls}
    invalid = _step(status="invalid", node="plan", plan=plan, errors=[{"error": {"type": "x"}}])
    begins, twice = [_PLANNED, _asked(1)], {"plan": 1, "respond": 1}
    return [
        _run(
            WHOLE,
            1,
            begins,
            _executes(WHOLE, whole),
            [_did(WHOLE, 0), _called(WHOLE, 1)],
            [_did(WHOLE, 1), _called(WHOLE, 2)],
            [_did(WHOLE, 2), _step(status="succeeded", node="execute", statuses=["success"] * 3), _asked(2)],
            _answer(2),
            script=whole,
            requests=twice,
        ),
        _run(
            HALTED,
            20,
            begins,
            _executes(HALTED, halted),
            [_did(HALTED, 0), _called(HALTED, 1, "refuse")],
            [_observed("1-1", "failed"), _halted("success", "failed", "not_executed"), _asked(2)],
            _answer(2),
            script=halted,
            requests=twice,
        ),
        _run(REJECTED, 40, begins, [invalid, _asked(2)], _answer(2), script=rejected, requests=twice),
        _run(DIRECT, 60, begins, _answer(1, "plan"), script=direct, requests={"plan": 1}),
        _run(
            LATE,
            80,
            begins,
            [invalid, _chunk(2, "none"), _done("none", "budget_exhausted")],
            script=rejected,
            requests={"plan": 1},
            may_fail=True,
        ),
    ]


def _executes(run: str, script: Plan) -> list[Event]:
    """A plan, and the beginning of its execution."""
    plan = {"reasoning": "as asked", "calls": script.calls}
    decided = [_step(node="plan", plan=plan), _step(status="succeeded", node="plan")]
    return [*decided, _step(node="execute", calls=[_call(run, 0)])]


def _halted(*statuses: str) -> Event:
    return _step(status="failed", node="execute", statuses=[*statuses], halt_reason="tool_error: no")


def _call(run: str, index: int, tool: str = "once") -> Event:
    call: Event = {"call_id": f"1-{index}", "tool": tool, "args": {"ms": 0}}
    return {**call, "args": {"ms": 0, "after": f"{run}.1-{index - 1}"}, "resolved": True} if index else call


def _called(run: str, index: int, tool: str = "once") -> Event:
    return {"type": "called", "step": 1, "calls": [_call(run, index, tool)]}


def _did(run: str, index: int) -> Event:
    return _observed(f"1-{index}", observation={"did": f"{run}.1-{index}"})


def _answer(turn: int, node: str = "respond") -> list[Event]:
    steps = [_step(turn, node=node), _step(turn, "succeeded", node=node)]
    return [_chunk(turn, "word0"), *steps, _done("word0")]
