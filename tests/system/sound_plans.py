"""A session of five planned runs in which nothing went wrong."""

from typing import Any

from tests.system.model import Plan, Stage
from tests.system.traces import Evidence, Execution, RunEvidence, StoredRecord

WHOLE, HALTED, REJECTED, DIRECT, LATE = "a" * 32, "b" * 32, "c" * 32, "d" * 32, "e" * 32
Events = list[dict[str, Any]]
_STARTED = {"type": "run_started", "strategy": "planned"}


def _asked(turn: int, attempt: int = 1, cause: str = "turn") -> dict[str, Any]:
    return {"type": "asked", "turn": turn, "attempt": attempt, "cause": cause}


def _step(node: str, status: str, step: int = 1, **more: Any) -> dict[str, Any]:
    attempt = 1 if status == "started" else None
    return {"type": "step", "node": node, "status": status, "step": step, "attempt": attempt, "calls": [], **more}


def _call(run: str, index: int, tool: str = "once") -> dict[str, Any]:
    after = {"after": f"{run}.1-{index - 1}"} if index else {}
    call = {"call_id": f"1-{index}", "tool": tool, "args": {"ms": 0, **after}}
    return call | ({"resolved": True} if index else {})


def _called(run: str, index: int, tool: str = "once") -> dict[str, Any]:
    return {"type": "called", "step": 1, "calls": [_call(run, index, tool)]}


def _observed(run: str, index: int, status: str = "succeeded") -> dict[str, Any]:
    outcome = {"observation": {"did": f"{run}.1-{index}"}} if status == "succeeded" else {"observation": None}
    return {"type": "observed", "call_id": f"1-{index}", "status": status, **outcome}


def _plan(script: Plan) -> dict[str, Any]:
    return {"reasoning": "as asked", "calls": script.calls}


def _answer(turn: int, node: str = "respond") -> Events:
    chunk = {**_CHUNK, "action_seq": turn}
    started = _step(node, "started", turn)
    return [chunk, started, _step(node, "succeeded", turn), {"type": "done", **_DONE}]


_CHUNK = {"type": "chunk", "attempt": 1, "seq": 0, "offset": 0, "text": "word0", "done": True}
_DONE = {"reason": "answer_complete", "raw_answer": "word0"}


def _evidence(run_id: str, script: Plan, at: int, *records: Events) -> RunEvidence:
    stored = [StoredRecord(at + n, "log", 100.0 + at + n, events) for n, events in enumerate(records)]
    requests: dict[Stage, int] = {"plan": 1} if run_id in {DIRECT, LATE} else {"plan": 1, "respond": 1}
    seen = [("", event) for record in stored for event in record.events]
    may_fail = run_id == LATE
    facts: dict[str, Any] = {"records": stored, "seen": seen, "in_index": "done", "requests": requests}
    return RunEvidence(run_id, may_fail=may_fail, script=script, **facts)


def sound() -> Evidence:
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
    decided = _step("plan", "started", plan=_plan(whole)), _step("plan", "succeeded")
    statuses = ["success", "failed", "not_executed"]
    runs = [
        _evidence(
            WHOLE,
            whole,
            1,
            [_STARTED, _asked(1)],
            [*decided, _step("execute", "started", calls=[_call(WHOLE, 0)])],
            [_observed(WHOLE, 0), _called(WHOLE, 1)],
            [_observed(WHOLE, 1), _called(WHOLE, 2)],
            [_observed(WHOLE, 2), _step("execute", "succeeded", statuses=["success"] * 3), _asked(2)],
            _answer(2),
        ),
        _evidence(
            HALTED,
            halted,
            20,
            [_STARTED, _asked(1)],
            [
                _step("plan", "started", plan=_plan(halted)),
                _step("plan", "succeeded"),
                _step("execute", "started", calls=[_call(HALTED, 0)]),
            ],
            [_observed(HALTED, 0), _called(HALTED, 1, "refuse")],
            [
                _observed(HALTED, 1, "failed"),
                _step("execute", "failed", statuses=statuses, halt_reason="tool_error: no"),
                _asked(2),
            ],
            _answer(2),
        ),
        _evidence(
            REJECTED,
            rejected,
            40,
            [_STARTED, _asked(1)],
            [_step("plan", "invalid", plan=_plan(rejected), errors=[{"error": {"type": "x"}}]), _asked(2)],
            _answer(2),
        ),
        _evidence(DIRECT, direct, 60, [_STARTED, _asked(1)], _answer(1, "plan")),
        _evidence(
            LATE,
            rejected,
            80,
            [_STARTED, _asked(1)],
            [
                _step("plan", "invalid", plan=_plan(rejected), errors=[{"error": {"type": "x"}}]),
                {**_CHUNK, "action_seq": 2, "text": "none"},
                {"type": "done", "reason": "budget_exhausted", "raw_answer": "none"},
            ],
        ),
    ]
    executions = [
        Execution(f"{WHOLE}.1-0", 7, 102.1),
        Execution(f"{WHOLE}.1-1", 7, 103.1, f"{WHOLE}.1-0"),
        Execution(f"{WHOLE}.1-2", 7, 104.1, f"{WHOLE}.1-1"),
        Execution(f"{HALTED}.1-0", 7, 121.1),
        Execution(f"{HALTED}.1-1", 7, 122.1, f"{HALTED}.1-0"),
    ]
    return Evidence(runs, executions, {"once": False, "refuse": False})
