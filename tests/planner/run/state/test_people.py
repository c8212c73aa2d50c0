"""What people have decided about the pauses of a run, as its log holds it."""

from contracts.runs.events import Paused, PlannedCall, Resumed
from services.planner.run.state.people import PauseDecisions, called_again

CALL = PlannedCall(call_id="1-1", tool="pay", args={"sum": 5}, direct="runner")
CONSENT = Paused(pause_id="a", reason="approval", until=9, call_id="1-1", tool="pay", spec="d" * 24, rule="payments")
OF_TOOL = Paused(pause_id="b", reason="input", until=9, call_id="1-1", tool="pay", source="tool", state={"paid": 1})


def test_an_approval_is_kept_for_the_call_and_for_its_rule() -> None:
    """An edit approves the call alone: the person saw other arguments than those that the model wrote."""
    decisions = PauseDecisions()
    decisions.take_decision(
        CONSENT, Resumed(pause_id="a", decision="edit", digest="e" * 64, id="r", request_sha256="s")
    )
    assert decisions.approved["1-1"].digest == "e" * 64
    assert (decisions.requests, decisions.closed, decisions.approved_rules) == ({"r": "s"}, {"a"}, set())
    decisions.take_decision(CONSENT, Resumed(pause_id="a", decision="approve", digest="d" * 64))
    assert decisions.approved_rules == {("payments", "pay")}


def test_answers_and_state_go_into_the_next_round() -> None:
    """In the order of the pauses, a rejection too: the tool gets it."""
    decisions = PauseDecisions()
    for number, decision in enumerate(("answer", "reject")):
        pause = OF_TOOL.model_copy(update={"number": number, "round": number})
        resumed = Resumed.model_validate({"pause_id": "b", "decision": decision, "input": number})
        decisions.take_pause(pause)
        decisions.take_decision(pause, resumed)
        again = called_again(CALL, pause, resumed)
        assert (again.round, again.direct, again.args) == (number + 1, None, {"sum": 5})
    assert [(each.number, each.decision, each.input) for each in decisions.answers["1-1"]] == [
        (0, "answer", 0),
        (1, "reject", 1),
    ]
    assert decisions.states == {"1-1": {"paid": 1}}


def test_images_that_a_person_removed() -> None:
    """Whatever else the decision says."""
    decisions = PauseDecisions()
    decisions.take_decision(OF_TOOL, Resumed(pause_id="b", decision="answer", images_remove=["i"]))
    decisions.take_decision(OF_TOOL, Resumed(pause_id="b", decision="reject", images_remove=["k"]))
    assert decisions.removed_images == {"i", "k"}
