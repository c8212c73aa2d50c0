"""The one shape in which every run ends."""

import json
from typing import Any

from contracts.runs.payload import FinalPayload, Source
from contracts.tools.messages import ToolSpec
from services.planner.run.ending.payload import assemble
from services.shared.redaction.json_values import plain
from services.shared.redaction.separation import separate
from tests.support.model_server import Say, action
from tests.support.run_services import Handler
from tests.support.vector_tokens import assert_matches, decoded

from ._whole_run import stack

REFUSED = Say(status=400)
EMPTY: dict[str, dict[str, Any]] = {
    "sources": {"url": None, "snippet": None, "relevance_score": None},
    "suggested_actions": {"label": None, "params": {}},
}
FORCED = {
    "no_path": [Say(text="{"), Say(text="{"), Say(text="{")],
    "error": [Say(status=401)],
    "cancelled": [Say(silent=True)],
}
"""What the provider does so that a run ends like this, or can be ended; a budget is a limit instead."""


def check(vector: dict[str, Any]) -> None:
    """Assemble the payload; only the fields that the vector names are compared."""
    given = decoded(vector["input"])
    tool = tool_of_last(given)
    last = given.get("last_observation")
    payload = assemble(
        given.get("args") or {},
        last_observation=separate(last, marking(given["artifacts"][tool])).observation if tool else last,
        artifacts=given.get("artifacts"),
        sources=[Source.model_validate(source) for source in given.get("sources") or []],
        reason=given.get("reason") or "answer_complete",
        reflection_score=given.get("reflection_score"),
    )
    compare(payload, vector, given.get("reason") or "answer_complete")


def compare(payload: FinalPayload, vector: dict[str, Any], reason: str) -> None:
    """Only the fields that the vector names count; a source or suggested action may leave out what is empty."""
    shown = payload.model_dump() | {"reason": reason}
    for field, expected in decoded(vector["expected"]).items():
        items = EMPTY.get(field, {})
        whole = expected
        if isinstance(expected, list):
            whole = [items | item if isinstance(item, dict) else item for item in expected]
        assert_matches(plain(shown[field]), plain(whole), field)


async def check_runtime(vector: dict[str, Any]) -> None:
    """A whole run: tools yield what the vector has, then the model ends the run, or something else does."""
    given = decoded(vector["input"])
    tools = tools_of(given)
    judged = given.get("reflection_score") is not None
    reason = given.get("reason") or "answer_complete"
    replies = [action(name) for name in tools]
    if reason == "answer_complete":
        args = given.get("args") or {}
        replies.append(Say(text=json.dumps({"next_node": "final_response", "args": args})))
        replies += [Say(text=json.dumps({"score": given["reflection_score"]}))] if judged else []
    # Last: the call for the text of an answer fails, where there is one.
    replies += [*FORCED.get(reason, []), REFUSED]
    limits = {"max_steps": len(tools)} if reason == "budget_exhausted" else {}
    agent = "judged" if judged else "default"
    cancel = len(tools) + 1 if reason == "cancelled" else None
    story = await stack().tell(replies, tools, limits=limits, agent=agent, cancel_at_turn=cancel)
    end = story.end
    assert (end.reason if end.type == "done" else end.type) == reason
    payload = end if end.type == "done" else end.payload
    compare(FinalPayload.model_validate(payload.model_dump()), vector, reason)
    if reason == "answer_complete":
        assert story.shown() == end.raw_answer


def tools_of(given: dict[str, Any]) -> dict[str, tuple[ToolSpec, Handler]]:
    """The tools that yield a vector's artifacts, sources and last observation, in the order in which they are called.

    Artifacts that stand in the last observation come with it, all others by a call of their own. A budget runs out only
    after something was done: a call that yields nothing, where the vector has none.
    """

    def yields(result: Any) -> Handler:
        async def handler(_: dict[str, Any]) -> Any:
            return plain(result)

        return handler

    found: dict[str, tuple[ToolSpec, Handler]] = {}
    last_tool = tool_of_last(given)
    for name, fields in (given.get("artifacts") or {}).items():
        if name != last_tool:
            found[name] = ToolSpec(name=name, output_schema=marking(fields)), yields(fields)
    if given.get("sources"):
        item = {"type": "object", "produces_sources": True, "properties": {key: {} for key in Source.model_fields}}
        schema = {"type": "object", "properties": {"found": {"type": "array", "items": item}}}
        spec = ToolSpec(name="sources_of_vector", output_schema=schema)
        found[spec.name] = spec, yields({"found": given["sources"]})
    if "last_observation" in given or (given.get("reason") == "budget_exhausted" and not found):
        name = last_tool or "last_of_vector"
        marked = marking(given["artifacts"][name]) if last_tool else None
        found[name] = ToolSpec(name=name, output_schema=marked), yields(given.get("last_observation"))
    return found


def tool_of_last(given: dict[str, Any]) -> str | None:
    """The tool whose artifacts stand in the last observation, so that the model sees placeholders there."""
    last = given.get("last_observation")
    if not isinstance(last, dict):
        return None
    of_tools = (given.get("artifacts") or {}).items()
    tools = [name for name, fields in of_tools if fields and fields.items() <= last.items()]
    return tools[-1] if tools else None


def marking(fields: dict[str, Any]) -> dict[str, Any]:
    """An output schema with the annotations of these fields."""
    return {"type": "object", "properties": {field: {"artifact": True} for field in fields}}
