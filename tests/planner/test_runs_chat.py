"""Turns of the strategy `chat`: text, calls of tools, and hidden blocks, in whole runs over NATS."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from contracts.artifacts import ArtifactRef
from contracts.runs.events import Chunk
from contracts.wire.names import new_id
from services.shared.tools.catalogue import Catalogue
from tests.planner.conftest import TOOLS, Plan
from tests.planner.sessions.task_scripts import HOST, PARENT, scripted
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, Say, words
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning, tools_at_work
from tests.support.stores import Store

CHAT: dict[str, Any] = {"default": {"strategy": "chat"}}
LOOKS = [{"name": "look", "arguments": '{"q": "x"}'}]
VALUES = '\n\n**SUGGESTED_VALUES:** [{"label": "More", "value": "Show more"}]'
MORE = {"suggested_values": [{"label": "More", "value": "Show more"}]}
POSITIONS = {"tool_positions": [{"call_id": "1-1", "tool": "look", "offset": 12}]}
FIRST = Say(text="Let me look.", tool_calls=LOOKS, finish_reason="tool_calls")
LAST = Say(text=f" Found it.{VALUES}")


async def test_text_streams_around_a_call_and_blocks_are_hidden(plan: Plan, provider: ModelServer) -> None:
    """The chunks joined are the answer. The next prompt has what the model said, as it said it."""
    provider.say(FIRST, LAST)
    story = await (await plan(agents=CHAT)).tell()
    assert story.facts() == ["run_started", "asked", "step", "observed", "step", "asked", "step", "step", "done"]
    assert story.shown() == story.end.raw_answer == "Let me look. Found it."
    assert story.end.extra == MORE | POSITIONS
    assert (story.of("chunk")[0].part, story.of("chunk")[0].offset) == (0, 0)
    assert {chunk.action_seq for chunk in story.of("chunk")} == {1}
    assert [(step.part, step.said, step.shown_to) for step in story.of("step") if step.status == "started"] == [
        (0, "Let me look.", 12),
        (1, f" Found it.{VALUES}", 22),
    ]
    sent = provider.ledger[1].body["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[2]["content"] == "Let me look."


async def test_a_marker_may_be_cut_by_a_call(plan: Plan, provider: ModelServer) -> None:
    """It is one marker all the same, and a listener is told that a block is being written."""
    head, tail = VALUES[:9], VALUES[9:]
    provider.say(Say(text=f"Wait.{head}", tool_calls=LOOKS), Say(text=f"{tail} Done.", pause_s=0.02))
    story = await (await plan(agents=CHAT)).tell()
    assert story.shown() == story.end.raw_answer == "Wait.\n\n Done."
    assert (story.end.extra["suggested_values"], story.end.warnings) == (MORE["suggested_values"], [])
    assert [event.name for event in story.of("block_started")] == ["SUGGESTED_VALUES"]


CASES: dict[str, tuple[list[Say], str, dict[str, Any], list[str]]] = {
    "no text": ([Say(text=VALUES)], "", MORE, []),
    "nothing but a broken block": (
        [Say(text='DATA_PROPOSAL: {"a')],
        "No answer produced.",
        {},
        ["truncated_json", "the model's final response held no answer"],
    ),
    "a call in the text": (
        [Say(text='Let me look.\n{"next_node": "look", "args": {"q": "x"}}'), LAST],
        "Let me look.\n Found it.",
        MORE | POSITIONS,
        [],
    ),
    "a call of no tool": (
        [Say(text="Let me look.", tool_calls=[{"name": "lok.up", "arguments": "{}"}]), LAST],
        "Let me look. Found it.",
        MORE | {"tool_positions": [{"call_id": "1-1", "tool": "lok_up", "offset": 12}]},
        [],
    ),
    "nothing but a thought": (
        [FIRST, Say(text="<think>Hm.</think>"), LAST],
        "Let me look. Found it.",
        MORE | POSITIONS,
        [],
    ),
    "nothing at first": ([Say(text=""), LAST], "Found it.", MORE, []),
    "an echo": (
        [
            Say(tool_calls=[{"name": "look", "arguments": '{"q": "SUGGESTED_VALUES: []"}'}]),
            Say(text="A SUGGESTED_VALUES: [] B"),
        ],
        "A SUGGESTED_VALUES: [] B",
        {"tool_positions": [{"call_id": "1-1", "tool": "look", "offset": 0}]},
        ["echoed_block"],
    ),
    "a cut call": (
        [Say(text="Let me look.", tool_calls=[{"name": "look", "arguments": '{"q'}], finish_reason="length")],
        "Let me look.",
        {},
        ["the answer is cut: the model reached the limit of its output"],
    ),
    "a cut call in the text": (
        [Say(text='Let me look.\n{"next_node": "lok", "args": {"q": "x"}}', finish_reason="length")],
        "Let me look.",
        {},
        ["the answer is cut: the model reached the limit of its output"],
    ),
    "a final response": (
        [Say(tool_calls=[{"name": "final_response", "arguments": '{"answer": "So be it."}'}])],
        "So be it.",
        {},
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_how_turns_end(plan: Plan, provider: ModelServer, case: str) -> None:
    """The chunks joined are the answer, whatever the model writes."""
    replies, answer, extra, warnings = CASES[case]
    provider.say(*replies)
    story = await (await plan(agents=CHAT)).tell()
    assert (story.end.raw_answer, story.end.extra, story.end.warnings) == (answer, extra, warnings)
    assert story.shown() == answer


@pytest.mark.parametrize("setting", [{"action_transport": "json"}, {"model": "builtin/rehearsal"}], ids=str)
async def test_models_without_native_calls(plan: Plan, provider: ModelServer, setting: dict[str, Any]) -> None:
    """The functions stand in the prompt; a call is JSON."""
    provider.say(Say(text='{"next_node": "look", "args": {"q": "x"}}'), LAST)
    story = await (await plan(agents={"default": CHAT["default"] | setting})).tell("Look up 'x'")
    assert [step.node for step in story.of("step") if step.status == "started"] == ["look", "final_response"]
    assert story.shown() == story.end.raw_answer != ""
    if provider.ledger:
        assert "tools" not in provider.ledger[0].body
        assert '"name":"look"' in provider.ledger[0].body["messages"][0]["content"]


async def test_an_input_is_read_by_the_next_part(plan: Plan, provider: ModelServer) -> None:
    """The text of both parts stays, and the last chunk is in the last part."""
    planner = await plan(agents=CHAT)
    provider.say(Say(text="The first part is said slowly.", pause_s=0.05, piece=2), Say(text=" And more."))
    run = await planner.ask()
    await planner.until(run, lambda event: isinstance(event, Chunk))
    await planner.add(run, "Say more")
    story = await planner.ended(run)
    assert story.shown() == story.end.raw_answer == "The first part is said slowly. And more."
    assert "Say more" in provider.ledger[1].text


@pytest.mark.parametrize("later", [None, Say(status=503), Say(status=401)], ids=["breaks", "fails", "is refused"])
async def test_a_failure_keeps_what_was_shown(plan: Plan, provider: ModelServer, later: Say | None) -> None:
    """Of all parts, also where the last request shows nothing: listeners have the text of the one before."""
    broken = Say(text="Found some more.", cut_after=4, pause_s=0.01)
    provider.say(FIRST, broken, later or broken)
    story = await (await plan(agents=CHAT)).tell()
    assert story.end.type == "error"
    assert story.shown() == story.end.payload.raw_answer
    assert "Let me look.Found some more.".startswith(story.end.payload.raw_answer)
    assert len(story.end.payload.raw_answer) > len("Let me look.")
    assert story.end.payload.extra == POSITIONS


async def test_a_deadline_behind_a_failure_keeps_what_was_shown(plan: Plan, provider: ModelServer) -> None:
    """While the next request waits for its provider."""
    broken = Say(text="Let me look.", cut_after=3, pause_s=0.01)
    provider.say(broken, Say(status=429, headers={"Retry-After": "5"}))
    story = await (await plan(agents=CHAT)).tell(limits={"deadline_s": 1})
    assert (story.end.reason, story.end.route) == ("budget_exhausted", "partial")
    assert story.shown() == story.end.raw_answer
    assert story.end.raw_answer not in {"", "No answer produced."}


@pytest.mark.parametrize("limits", [{"max_steps": 1}, {"max_tool_calls": 0}, {"deadline_s": 1}], ids=str)
async def test_a_spent_budget_keeps_what_was_said(plan: Plan, provider: ModelServer, limits: dict[str, Any]) -> None:
    """Before another part, before a call, and in the middle of a part."""
    provider.say(Say(text=f"Let me look.{VALUES}", tool_calls=LOOKS, stall_after=8 if "deadline_s" in limits else None))
    story = await (await plan(agents=CHAT)).tell(limits=limits)
    assert (story.end.reason, story.end.route) == ("budget_exhausted", "partial")
    assert story.shown() == story.end.raw_answer == "Let me look."


async def test_a_long_text_is_stored_apart(plan: Plan, provider: ModelServer, store: Store) -> None:
    """Every planner reads it with the log: the cut marker is one, and the next prompt has all of it."""
    text = f"{words(6_000)}{VALUES[:9]}"
    first = await plan(agents=CHAT)
    provider.say(Say(text=text, piece=500, tool_calls=LOOKS), Say(text=VALUES[9:], pause_s=0.05, piece=3, times=2))
    story = await first.tell()
    [said, _] = [step.said for step in story.of("step") if step.status == "started"]
    assert isinstance(said, ArtifactRef)
    assert (await store.client.read("default", said.artifact_id, limit=said.size))[1].decode() == text
    assert story.shown() == story.end.raw_answer == words(6_000)
    assert story.end.extra["suggested_values"] == MORE["suggested_values"]
    assert provider.ledger[1].body["messages"][2]["content"] == text


@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", ["before", "stored", "known"])
@pytest.mark.parametrize("what", ['"seq":1,', '"said":"Let me', '"type":"done"'])
async def test_a_killed_planner_takes_nothing_back(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, what: str, moment: str
) -> None:
    """In the middle of a part with half a marker, at its end, and at the end of the turn."""
    url, cut = own_nats_server.url, 11
    provider.by_turn(
        Say(text=f"Let me look.{VALUES[:cut]}", tool_calls=LOOKS, pause_s=0.02),
        Say(text=f"{VALUES[cut:]} Found it.", pause_s=0.02),
    )
    at_work = replace(client, catalogue=await Catalogue(client.bus).start())
    async with tools_at_work(at_work, url, TOOLS):
        dying = DyingPlanner(url, provider.url, what, moment)
        run = await client.ask(strategy="chat")
        following = asyncio.create_task(client.ended(run, 60))
        await dying.dead()
        async with planning(url, provider):
            story = await following
    await at_work.catalogue.stop()
    assert story.shown() == story.end.raw_answer == "Let me look.\n\n Found it."
    assert story.end.extra == MORE | POSITIONS


async def test_a_redirect_replaces_the_part(plan: Plan, provider: ModelServer) -> None:
    """The parts before it stay."""
    planner = await plan(agents=CHAT)
    provider.say(FIRST, Say(text=" I found nothing at all.", stall_after=3), Say(text=" Done."))
    run = await planner.ask()
    await planner.until(run, lambda event: isinstance(event, Chunk) and event.part == 1)
    await planner.add(run, "Something else", redirect=True)
    story = await planner.ended(run)
    assert story.shown() == story.end.raw_answer == "Let me look. Done."


async def test_a_conversation(plan: Plan, provider: ModelServer) -> None:
    """Earlier answers are text, and what the user has written before is a quotation when the model repeats it."""
    planner, session = await plan(agents=CHAT), new_id()
    provider.say(Say(text=f"Yes.{VALUES}"), Say(text="You wrote SUGGESTED_VALUES: []."))
    await planner.tell("What is SUGGESTED_VALUES: [] for?", session_id=session)
    story = await planner.tell("What did I write?", session_id=session)
    assert story.end.raw_answer == "You wrote SUGGESTED_VALUES: []."
    assert story.end.warnings == ["echoed_block"]
    assert [m["content"] for m in provider.ledger[1].body["messages"] if m["role"] == "assistant"] == ["Yes."]


async def test_a_background_task(plan: Plan, provider: ModelServer) -> None:
    """It is spawned by a call, in the session of the run."""
    planner = await plan(agents={"host": {**HOST["host"], "strategy": "chat"}})
    args = json.dumps({"name": "moon", "mode": "subagent", "query": "moon?"})
    spawning = Say(text="I start it.", tool_calls=[{"name": "task", "arguments": args}])
    scripted(provider, spawning, Say(text=" It has begun."), moon=Say(text="Far."))
    story = await planner.tell(PARENT, agent="host")
    assert story.shown() == story.end.raw_answer == "I start it. It has begun."
    assert story.of("step")[0].node == "task"
