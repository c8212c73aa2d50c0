"""Providers that fail: what is asked again, of whom, when, and what a listener sees of it."""

import json
import re
import threading

import pytest

from services.planner.strategies.react.reading import ReactReading
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer, words
from tests.support.model_shapes import TOO_LONG

SPARE = "openai/spare"


async def test_what_may_pass_is_retried_with_an_event(plan: Plan, provider: ModelServer) -> None:
    """Twice; each is an event with the reason and the wait, and the next attempt follows it."""
    provider.say(Say(status=503, times=2), answer("at last"))
    story = await (await plan()).tell()
    assert (story.end.type, story.end.raw_answer) == ("done", "at last")
    failures = story.of("model_failed")
    assert [(each.then, each.model, each.next_model) for each in failures] == [
        ("retry", "openai/scripted", "openai/scripted")
    ] * 2
    assert [(each.turn, each.attempt, each.usage.model_calls) for each in failures] == [(1, 1, 1), (1, 2, 1)]
    assert all(each.wait_s > 0 and each.fault.retryable for each in failures)
    assert "scripted" in failures[0].fault.reason
    assert [(asked.attempt, asked.cause) for asked in story.of("asked")] == [
        (1, "turn"),
        (2, "provider"),
        (3, "provider"),
    ]
    assert story.end.usage.model_calls == len(provider.ledger) == 3


async def test_the_model_that_failed_is_the_one_that_was_asked(plan: Plan, provider: ModelServer) -> None:
    """Of a fallback whose reply broke off it is said that it did; it is retried like the first model."""
    broken = Say(text=answer("so far " + words(50)).text, cut_after=20)
    provider.say(Say(status=404), broken, answer("at last"))
    story = await (await plan(fallback_models=[SPARE])).tell()
    assert [(each.model, each.next_model) for each in story.of("model_failed")][:2] == [
        ("openai/scripted", SPARE),
        (SPARE, SPARE),
    ]
    assert [asked.model for asked in story.of("asked")] == ["openai/scripted", SPARE, SPARE]
    assert [seen.body["model"] for seen in provider.ledger] == ["scripted", "spare", "spare"]


async def test_a_format_that_a_server_refuses_is_left_out(plan: Plan, provider: ModelServer) -> None:
    """The refused request is an attempt of its own, without a wait; the planner remembers the model."""
    planning = await plan(max_provider_failures=0)
    provider.say(Say(status=400), action("look", q="x"), answer("found"))
    story = await planning.tell()
    [failed] = story.of("model_failed")
    assert (failed.fault.code, failed.then, failed.wait_s) == ("response_format_refused", "retry", 0.0)
    assert [(asked.turn, asked.attempt, asked.cause) for asked in story.of("asked")] == [
        (1, 1, "turn"),
        (1, 2, "provider"),
        (2, 1, "turn"),
    ]
    assert story.end.usage.model_calls == 3
    provider.say(answer("again"))
    assert not (await planning.tell()).of("model_failed")
    assert ["response_format" in seen.body for seen in provider.ledger] == [True, False, False, False]


async def test_a_pause_of_seconds_holds_no_slot(plan: Plan, provider: ModelServer) -> None:
    """It is a timer: with one slot for all runs another run is answered meanwhile."""
    planning = await plan(planner_slots=1, planner_request_slots=1)
    provider.say(Say(status=429, headers={"retry-after": "4"}), answer("late"), marker="the first")
    provider.say(answer("soon"), marker="the second")
    first = await planning.ask("the first")
    await planning.until(first, lambda event: event.type == "model_failed")
    second = await planning.tell("the second")
    story = await planning.ended(first)
    assert (second.end.raw_answer, story.end.raw_answer) == ("soon", "late")
    [failed] = story.of("model_failed")
    assert failed.wait_s == 4
    first_seen, _, last_seen = provider.ledger
    assert 4 <= last_seen.at - first_seen.at < 8
    assert [(asked.attempt, asked.by.partition(":")[0]) for asked in story.of("asked")] == [
        (1, "REQUESTS"),
        (2, "INBOX"),
    ]


@pytest.mark.parametrize("pause_s", ["1.5", "15"])
async def test_a_cancel_ends_a_run_that_waits_for_a_provider(plan: Plan, provider: ModelServer, pause_s: str) -> None:
    """At once, in the handling's own wait as well as in that of a timer."""
    planning = await plan()
    provider.say(Say(status=429, headers={"retry-after": pause_s}))
    run = await planning.ask()
    await planning.until(run, lambda event: event.type == "model_failed")
    await planning.cancel(run)
    story = await planning.ended(run, wait_s=1.4)
    assert story.end.type == "cancelled"
    assert len(provider.ledger) == 1


async def test_a_conversation_that_is_too_long_is_compacted_once(plan: Plan, provider: ModelServer) -> None:
    """Every step is still in it afterwards: what was called, and the ends of what came of it."""
    long = {"q": words(3000)}
    provider.say(
        action("look", **long), action("look", q="short"), Say(status=400, error=TOO_LONG), answer("compacted")
    )
    story = await (await plan()).tell()
    [compacted] = story.of("compacted")
    assert (compacted.cause, compacted.turn) == ("overflow", 3)
    assert [asked.cause for asked in story.of("asked")] == ["turn", "turn", "turn", "compacted"]
    before, after = provider.ledger[-2].text, provider.ledger[-1].text
    assert len(after) < len(before) / 2
    assert all(part in after for part in ("word0 ", "word2999", "found word0", "succeeded", "found short"))
    assert story.end.raw_answer == "compacted"


async def test_a_reply_of_megabytes_does_not_stop_the_others(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in a thread."""
    threads: list[str] = []
    decide = ReactReading.decide

    def noting(self: ReactReading, reply: object) -> object:
        threads.append(threading.current_thread().name)
        return decide(self, reply)  # type: ignore[arg-type]

    monkeypatch.setattr(ReactReading, "decide", noting)
    provider.say(Say(text="[" * 300_000, piece=50_000), answer("short"))
    story = await (await plan()).tell()
    assert story.end.raw_answer == "short"
    assert threads[0] != "MainThread"
    assert threads[1] == "MainThread"


async def test_a_refusal_ends_the_run_with_what_the_model_says(plan: Plan, provider: ModelServer) -> None:
    """It is not asked again, nor another model; the payload has it as an answer with a route of its own."""
    chunk = {"choices": [{"delta": {"refusal": "I cannot help with that."}, "finish_reason": "stop"}]}
    provider.say(Say(blob=b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"))
    end = (await (await plan(fallback_models=[SPARE])).tell()).end
    assert (end.type, end.code, len(provider.ledger)) == ("error", "model_refused", 1)
    assert (end.payload.raw_answer, end.payload.route) == ("I cannot help with that.", "refusal")


async def test_an_action_in_the_reasoning_alone_counts(plan: Plan, provider: ModelServer) -> None:
    """A server took it for reasoning. Other reasoning without a reply is no answer."""
    provider.say(Say(reasoning=answer("yes").text))
    assert (await (await plan()).tell()).end.raw_answer == "yes"
    provider.reset()
    provider.say(Say(reasoning="I should answer."), answer("yes"))
    story = await (await plan()).tell()
    assert "gave reasoning and no reply" in story.of("model_failed")[0].fault.reason
    assert story.end.raw_answer == "yes"


async def test_a_conversation_that_stays_too_long_is_measured(plan: Plan, provider: ModelServer) -> None:
    """It is compacted once; then its size is told. An error with status 200 counts as one."""
    error = {"object": "error", "message": "the prompt exceeds the context window", "code": 400}
    provider.say(Say(blob=b"data: " + json.dumps(error).encode() + b"\n\n"))
    story = await (await plan()).tell()
    assert (story.end.code, len(provider.ledger)) == ("context_too_long", 2)
    assert [each.cause for each in story.of("compacted")] == ["overflow"]
    assert re.search(r"compacted, it has \d+ messages with \d+ characters", story.end.error)


NATIVE = {"default": {"action_transport": "tools"}}
SIGNED = {"extra_content": {"google": {"thought_signature": "A"}}}
LOOKS = Say(
    reasoning="I should look.",
    tool_calls=[{"name": "look", "arguments": '{"q": "x"}', **SIGNED}],
    finish_reason="tool_calls",
)
ANSWERS = Say(tool_calls=[{"name": "final_response", "arguments": '{"answer": "found"}'}], finish_reason="tool_calls")


async def test_they_return_with_the_calls_and_are_on_the_log(plan: Plan, provider: ModelServer) -> None:
    """So any planner sends them back, also after the death of the first."""
    provider.say(LOOKS, ANSWERS)
    story = await (await plan(agents=NATIVE)).tell()
    assert story.end.raw_answer == "found"
    [spoken] = [message for message in provider.ledger[1].body["messages"] if message["role"] == "assistant"]
    assert spoken["reasoning_content"] == "I should look."
    assert spoken["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]
    assert story.of("step")[0].opaque.model_dump() == {
        "model": "openai/scripted",
        "message": {"reasoning_content": "I should look."},
        "calls": [SIGNED],
    }


async def test_a_fallback_gets_none(plan: Plan, provider: ModelServer) -> None:
    """They belong to the model that sent them, which gets them again later."""
    provider.say(LOOKS, Say(status=500), LOOKS, ANSWERS)
    await (await plan(agents=NATIVE, fallback_models=[SPARE], max_provider_failures=0)).tell()
    assert [seen.body["model"] for seen in provider.ledger] == ["scripted", "scripted", "spare", "scripted"]
    assert ['"A"' in seen.text for seen in provider.ledger] == [False, True, False, True]
    last = [message for message in provider.ledger[3].body["messages"] if message["role"] == "assistant"]
    assert ["extra_content" in message["tool_calls"][0] for message in last] == [True, False]
    assert not any('"opaque"' in seen.text for seen in provider.ledger)
