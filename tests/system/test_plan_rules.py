"""The rules of plans find nothing in sound runs, and each of them notices its own kind of wrong."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.system.checker import judge
from tests.system.model import Plan, Stage
from tests.system.plan_rules import PLAN_RULES, calls_with_what_was_announced
from tests.system.traces import Evidence, Execution, RunEvidence, StoredRecord

#: A rule is trusted by those who change it; `make chaos` proves each with its mutants.
pytestmark = pytest.mark.chaos

WHOLE, HALTED, REJECTED, DIRECT = "a" * 32, "b" * 32, "c" * 32, "d" * 32
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
    chunk = {"type": "chunk", "action_seq": turn, "attempt": 1, "seq": 0, "text": "word0", "done": True}
    started = _step(node, "started", turn)
    return [chunk, started, _step(node, "succeeded", turn), {"type": "done", **_DONE}]


_DONE = {"reason": "answer_complete", "raw_answer": "word0"}


def _evidence(run_id: str, script: Plan, at: int, *records: Events) -> RunEvidence:
    stored = [StoredRecord(at + n, "log", 100.0 + at + n, events) for n, events in enumerate(records)]
    requests: dict[Stage, int] = {"plan": 1} if run_id == DIRECT else {"plan": 1, "respond": 1}
    seen = [("", event) for record in stored for event in record.events]
    return RunEvidence(run_id, records=stored, seen=seen, in_index="done", script=script, requests=requests)


def sound() -> Evidence:
    """A plan of three calls, one of three that the second call halts, one that is rejected, and a direct response."""
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
    ]
    executions = [
        Execution(f"{WHOLE}.1-0", 7, 102.1),
        Execution(f"{WHOLE}.1-1", 7, 103.1, f"{WHOLE}.1-0"),
        Execution(f"{WHOLE}.1-2", 7, 104.1, f"{WHOLE}.1-1"),
        Execution(f"{HALTED}.1-0", 7, 121.1),
        Execution(f"{HALTED}.1-1", 7, 122.1, f"{HALTED}.1-0"),
    ]
    return Evidence(runs, executions, {"once": False, "refuse": False})


def _of(e: Evidence, run: str, record: int, event: int) -> dict[str, Any]:
    return _record(e, run, record)[event]


def _record(e: Evidence, run: str, record: int) -> Events:
    return next(each for each in e.runs if each.run_id == run).records[record].events


def _plan_again(e: Evidence) -> None:
    _record(e, WHOLE, 4).append(_asked(3))


def _plan_instead_of_answering(e: Evidence) -> None:
    _of(e, WHOLE, 5, 1)["node"] = "plan"


def _answer_a_direct_response(e: Evidence) -> None:
    _record(e, DIRECT, 0).append(_asked(2))


def _answer_without_a_request(e: Evidence) -> None:
    _record(e, REJECTED, 1).pop()


def _ask_unannounced(e: Evidence) -> None:
    e.runs[0].requests["respond"] = 2


def _restate_by_a_request(e: Evidence) -> None:
    _record(e, DIRECT, 0)[1]["cause"] = "restated"


def _swap_calls(e: Evidence) -> None:
    for record, index in ((2, 2), (3, 1)):
        _of(e, WHOLE, record, 1)["calls"] = [_call(WHOLE, index)]


def _call_twice(e: Evidence) -> None:
    _record(e, WHOLE, 3).append(_called(WHOLE, 1))


def _call_two_at_once(e: Evidence) -> None:
    _record(e, WHOLE, 1).append(_record(e, WHOLE, 2).pop())


def _call_after_a_failure(e: Evidence) -> None:
    _record(e, HALTED, 3).insert(1, _called(HALTED, 2))


def _call_another_tool(e: Evidence) -> None:
    _of(e, WHOLE, 2, 1)["calls"][0]["tool"] = "often"


def _call_what_was_not_planned(e: Evidence) -> None:
    for step in (_of(e, HALTED, 1, 0), _of(e, REJECTED, 1, 0)):
        step["plan"]["calls"] = step["plan"]["calls"][:1]


def _pass_the_template(e: Evidence) -> None:
    _of(e, WHOLE, 2, 1)["calls"][0]["args"]["after"] = "$0.output.did"


def _pass_an_older_result(e: Evidence) -> None:
    _of(e, WHOLE, 3, 1)["calls"][0]["args"]["after"] = f"{WHOLE}.1-0"


def _pass_nothing(e: Evidence) -> None:
    _of(e, WHOLE, 2, 1)["calls"][0]["args"].pop("after")


def _alter_a_literal(e: Evidence) -> None:
    _of(e, WHOLE, 1, 2)["calls"][0]["args"]["ms"] = 1


def _hide_that_it_was_resolved(e: Evidence) -> None:
    _of(e, WHOLE, 2, 1)["calls"][0]["resolved"] = False


def _claim_a_success(e: Evidence) -> None:
    _of(e, HALTED, 3, 1)["statuses"] = ["success", "success", "not_executed"]


def _forget_a_call(e: Evidence) -> None:
    _of(e, HALTED, 3, 1)["statuses"].pop()


def _end_it_as_a_success(e: Evidence) -> None:
    _of(e, HALTED, 3, 1)["status"] = "succeeded"


def _halt_without_a_reason(e: Evidence) -> None:
    _of(e, HALTED, 3, 1).pop("halt_reason")


def _leave_the_execution_open(e: Evidence) -> None:
    del _record(e, WHOLE, 4)[1]


def _end_the_execution_twice(e: Evidence) -> None:
    _record(e, WHOLE, 4).append(_of(e, WHOLE, 4, 1))


def _halt_and_give_up(e: Evidence) -> None:
    _record(e, HALTED, 3).pop()


def _begin_an_invalid_plan(e: Evidence) -> None:
    _record(e, REJECTED, 1).insert(1, _step("execute", "started", calls=[_call(REJECTED, 0)]))


def _reject_without_errors(e: Evidence) -> None:
    _of(e, REJECTED, 1, 0)["errors"] = []


def _run_a_plan_with_errors(e: Evidence) -> None:
    _of(e, WHOLE, 1, 0)["errors"] = [{"error": {"type": "x"}}]


def _answer_something_else(e: Evidence) -> None:
    _of(e, DIRECT, 1, 0)["text"] = _of(e, DIRECT, 1, 3)["raw_answer"] = "word1"


def _reject_a_good_plan(e: Evidence) -> None:
    e.runs[2].script = Plan(strategy="planned", turns=e.runs[2].script.turns if e.runs[2].script else (), tokens=1)


def _take_another_strategy(e: Evidence) -> None:
    e.runs[3].script = Plan(tokens=1)


def _lose_a_call_of_the_plan(e: Evidence) -> None:
    e.runs[2].script = Plan(strategy="planned", turns=(("once",),), wrong="$7.output.did", tokens=1)


def _execute_with_a_template(e: Evidence) -> None:
    e.executions[1].after = "$0.output.did"


MUTANTS: dict[str, list[Callable[[Evidence], None]]] = {
    "asks_at_most_twice": [
        _plan_again,
        _plan_instead_of_answering,
        _answer_a_direct_response,
        _answer_without_a_request,
    ],
    "announces_each_request": [_ask_unannounced, _restate_by_a_request],
    "calls_in_order": [
        _swap_calls,
        _call_twice,
        _call_two_at_once,
        _call_after_a_failure,
        _call_another_tool,
        _call_what_was_not_planned,
    ],
    "passes_results_on": [
        _pass_the_template,
        _pass_an_older_result,
        _pass_nothing,
        _alter_a_literal,
        _hide_that_it_was_resolved,
    ],
    "says_how_calls_ended": [
        _claim_a_success,
        _forget_a_call,
        _end_it_as_a_success,
        _halt_without_a_reason,
        _leave_the_execution_open,
        _end_the_execution_twice,
    ],
    "answers_what_has_ended": [_answer_without_a_request, _halt_and_give_up],
    "runs_nothing_invalid": [_begin_an_invalid_plan, _reject_without_errors, _run_a_plan_with_errors],
    "follows_its_script": [
        _answer_something_else,
        _reject_a_good_plan,
        _take_another_strategy,
        _lose_a_call_of_the_plan,
    ],
    "calls_with_what_was_announced": [_execute_with_a_template],
}


def test_sound_runs_pass() -> None:
    """No rule complains of runs in which nothing went wrong."""
    assert judge(sound()) == {}


@pytest.mark.parametrize(
    ("rule", "mutant"),
    [(rule, mutant) for rule, mutants in MUTANTS.items() for mutant in mutants],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_each_rule_notices_its_mutants(rule: str, mutant: Callable[[Evidence], None]) -> None:
    """One altered record is enough for the rule that forbids it."""
    altered = copy.deepcopy(sound())
    mutant(altered)
    assert rule in judge(altered)


def test_every_rule_has_a_mutant() -> None:
    """A rule that nothing can break is no rule."""
    assert set(MUTANTS) == {*PLAN_RULES, calls_with_what_was_announced.__name__}


def test_a_call_is_announced_again_after_a_decision() -> None:
    """It waited for a person, who has given other arguments."""
    decided = sound()
    call = _call(WHOLE, 1)
    again = {"type": "called", "step": 1, "calls": [{**call, "args": {"ms": 5}}]}
    _record(decided, WHOLE, 2).extend([{"type": "resumed", "pause_id": "1-1"}, again])
    assert not {*judge(decided)} & {*PLAN_RULES}


def test_a_direct_call_is_announced_again_by_who_takes_it_over() -> None:
    """Once, as one that is not direct."""
    taken = sound()
    _of(taken, WHOLE, 2, 1)["calls"][0]["direct"] = "a" * 32
    _record(taken, WHOLE, 2).append(_called(WHOLE, 1))
    assert not {*judge(taken)} & {*PLAN_RULES}
    _record(taken, WHOLE, 2).append(_called(WHOLE, 1))
    assert "calls_in_order" in judge(taken)
