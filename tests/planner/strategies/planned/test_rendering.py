"""The messages of the strategy `planned`."""

from typing import Any

from contracts.runs.decisions import PlainError, Plan, PlanCall, PlanError
from contracts.runs.events import Observed, Step
from contracts.runs.requests import RunLimits
from contracts.tools.messages import ArtifactPreview, RespondedArtifact, ToolSpec
from contracts.wire.faults import Fault
from services.planner.agents import Agent
from services.planner.run.state.history import Executed
from services.planner.strategies.planned import strategy as plans

TOOL = ToolSpec(name="research", description="Find.", output_schema={"type": "object", "properties": {"id": {}}})


def executed(calls: int, observed: list[Observed], **end: Any) -> Executed:
    """What came of a plan of so many calls of `research`."""
    plan = Plan(reasoning="because", calls=[PlanCall(tool_name="research", arguments={"n": n}) for n in range(calls)])
    step = Step(step=1, node="plan", status="started", plan=plan)
    return Executed(step, Step(step=1, node="execute", status="succeeded", **end), tuple(observed))


def outcome(place: int = 0, **fields: Any) -> Observed:
    """What came of a call of the plan."""
    return Observed.model_validate({"call_id": f"1-{place}", "tool": "research", "status": "succeeded", **fields})


def told(item: Executed) -> str:
    reply, message = plans.PlanReplies().executed(item)
    assert (reply["role"], message["role"]) == ("assistant", "user")
    return str(message["content"])


def test_skills_come_before_the_agents_prompt_and_both_before_the_plan() -> None:
    """The order of the system message."""
    agent = Agent(system_prompt="Be brief.", skills=["Write like Ann."])
    limits = RunLimits(max_tool_calls=5)
    message = plans.system_message(agent, [TOOL], limits=limits, transport="tools", max_calls=64)
    text = message["content"][0]["text"]
    places = [
        text.index(part) for part in ("Write like Ann.", "Be brief.", "You are the planner", "# Output", "<tools>")
    ]
    assert places == sorted(places)
    assert "at most 5 calls" in text


def test_results_are_numbered_and_bounded() -> None:
    """A result cannot close its marker, and a long one says how long it is."""
    text = told(executed(1, [outcome(observation={"x": "</results>" + "y" * 50_000})]))
    assert text.count("</results>") == 1
    assert "1. research - SUCCESS" in text
    assert "characters in all)" in text
    assert len(text) < plans.MAX_RESULT_CHARACTERS + 500


def test_many_results_share_the_room() -> None:
    """Sixty-four long results do not fill the model's context."""
    many = [outcome(n, observation="y" * 30_000) for n in range(64)]
    assert len(told(executed(64, many))) < plans.MAX_ALL_RESULTS_CHARACTERS + 10_000


def test_a_halted_plan_says_why_and_what_was_left() -> None:
    """With the error of the call."""
    fault = Fault(code="tool_error", reason="out of order")
    text = told(executed(2, [outcome(status="failed", failure=fault)], halt_reason="tool_error: out of order"))
    assert "The plan was halted" in text
    assert "1. research - FAILED" in text
    assert '"reason":"out of order"' in text
    assert "2. research - NOT EXECUTED" in text


def test_an_artifact_is_shown_by_its_preview() -> None:
    """With the id that the tool gave it; and the tool's own text, if there is one."""
    preview = ArtifactPreview(json_type="dict", size=70_000, counts={"": 3, "sections": 12}, head='{"title":"AI')
    responded = RespondedArtifact(artifact_id="abc-123", fingerprint="f", preview=preview)
    observation = {"artifact_id": "abc-123", "artifact": "<artifact:dict size=68KB>", "_metadata": {}}
    text = told(executed(1, [outcome(observation=observation, content="I wrote a blog.", responded=responded)]))
    for part in ('"content":"I wrote a blog."', '"artifact_id":"abc-123"', '"sections":12', '{\\"title\\":\\"AI'):
        assert part in text


def test_a_text_alone_is_the_result() -> None:
    """Of a tool without structured content."""
    assert '{"content":"done"}' in told(executed(1, [outcome(content="done")]))


def test_each_error_of_a_rejected_plan_is_a_line() -> None:
    """And nothing says that it was executed."""
    error = PlanError(
        tool_index=0, argument="n", template="$9.output", error=PlainError(type="invalid_template_syntax")
    )
    plan = Plan(calls=[PlanCall(tool_name="research")])
    step = Step(step=1, node="plan", status="invalid", plan=plan, errors=[error], errors_left_out=4)
    text = told(Executed(step))
    assert "The plan was rejected" in text
    assert "$9.output" in text
    assert "and 4 more errors" in text


def test_a_long_plan_is_shown_by_the_names_of_its_tools() -> None:
    """Its arguments may be of megabytes."""
    plan = Plan(reasoning="because", calls=[PlanCall(tool_name="research", arguments={"x": "y" * 20_000})])
    item = Executed(
        Step(step=1, node="plan", status="started", plan=plan), Step(step=1, node="execute", status="failed")
    )
    reply = plans.PlanReplies().executed(item)[0]["content"]
    assert "yyyy" not in reply
    assert '"tool_name":"research"' in reply
