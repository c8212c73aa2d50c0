"""Asking again, and asking another: over HTTP, with a clock that the test owns."""

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest

from services.planner.models.litellm import LiteLLMModel, ModelFailed, ModelRequest, Reply
from services.planner.models.retries import Note, Retrying
from tests.support.model_server import ModelServer, Say, words
from tests.support.waiting import wait_until

MAIN, SPARE = "openai/main", "openai/spare"
BUSY, BROKEN, FINE = Say(status=429), Say(status=500), Say(text="fine")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    """A scripted provider of both models."""
    with ModelServer() as running:
        yield running


class Waits:
    """A clock that moves only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.notes: list[Note] = []

    async def sleep(self, seconds: float) -> None:
        """Pass the time at once."""
        self.slept.append(seconds)
        self.now += seconds

    async def note(self, note: Note) -> None:
        """Keep what is reported."""
        self.notes.append(note)


@pytest.fixture
def waits() -> Waits:
    """Time, in the test's hands."""
    return Waits()


@pytest.fixture
async def retrying(server: ModelServer, waits: Waits) -> AsyncIterator[Retrying]:
    """The policy, over the scripted provider, with a spare model."""
    server.reset()
    model = LiteLLMModel(api_base=server.url)
    await model.warm()
    yield Retrying(
        model=model,
        fallbacks=(SPARE,),
        on_note=waits.note,
        sleep=waits.sleep,
        clock=lambda: waits.now,
        chance=lambda: 1.0,
    )
    await model.aclose()


async def ask(retrying: Retrying, **more: Any) -> Reply:
    """The reply to a question."""
    request = ModelRequest(model=MAIN, messages=[{"role": "user", "content": "a question"}], **more)
    last = [piece async for piece in retrying.stream(request)][-1]
    assert isinstance(last, Reply)
    return last


def asked(server: ModelServer) -> list[str]:
    """Which models the provider was asked for, in order."""
    return [seen.body["model"] for seen in server.ledger]


async def test_a_passing_failure_is_asked_again(server: ModelServer, retrying: Retrying, waits: Waits) -> None:
    """The pause doubles; every request counts as a call."""
    server.say(BROKEN, BUSY, FINE)
    reply = await ask(retrying)
    assert (reply.text, reply.model, reply.usage.model_calls) == ("fine", MAIN, 3)
    assert waits.slept == [0.5, 1.0]
    assert [(note.kind, note.model, note.attempt) for note in waits.notes] == [("retry", MAIN, 2), ("retry", MAIN, 3)]
    assert [note.fault.code for note in waits.notes] == ["model_failed", "model_rate_limited"]


async def test_an_empty_reply_is_asked_again(server: ModelServer, retrying: Retrying) -> None:
    """An empty reply is no answer."""
    server.say(Say(text=""), FINE)
    assert (await ask(retrying)).text == "fine"


async def test_the_next_model_is_asked_when_the_first_keeps_failing(
    server: ModelServer, retrying: Retrying, waits: Waits
) -> None:
    """Three times each."""
    server.say(replace(BROKEN, times=4), FINE)
    reply = await ask(retrying)
    assert (reply.text, reply.model) == ("fine", SPARE)
    assert asked(server) == ["main"] * 3 + ["spare"] * 2
    assert [note.kind for note in waits.notes] == ["retry", "retry", "fallback", "retry"]


async def test_a_wish_to_wait_is_granted(server: ModelServer, retrying: Retrying, waits: Waits) -> None:
    """`Retry-After` wins over a shorter pause."""
    server.say(replace(BUSY, headers={"retry-after": "9"}), FINE)
    await ask(retrying)
    assert waits.slept == [9]


async def test_a_wish_to_wait_too_long_loses_the_question(
    server: ModelServer, retrying: Retrying, waits: Waits
) -> None:
    """An hour is not waited for while there is another model."""
    server.say(replace(BUSY, headers={"retry-after": "3600"}), FINE)
    assert (await ask(retrying)).model == SPARE
    assert waits.slept == []


@pytest.mark.parametrize(("total_s", "slept"), [(900, [60]), (30, [])])
async def test_the_last_model_is_waited_for(
    server: ModelServer, retrying: Retrying, waits: Waits, total_s: float, slept: list[float]
) -> None:
    """However long a pause it wants, where the whole time allows it; a date is a pause too."""
    server.say(replace(BUSY, headers={"retry-after": "60"}), FINE)
    if not slept:
        with pytest.raises(ModelFailed, match="pause of 60 s"):
            await ask(retrying, fallbacks=(), total_s=total_s)
    else:
        assert (await ask(retrying, fallbacks=(), total_s=total_s)).model == MAIN
    assert waits.slept == slept


async def test_a_date_is_a_wish_to_wait_too(server: ModelServer, retrying: Retrying, waits: Waits) -> None:
    """Until then, whatever the day."""
    server.say(replace(BUSY, headers={"retry-after": formatdate(time.time() + 15, usegmt=True)}), FINE)
    await ask(retrying)
    assert 10 < waits.slept[0] <= 15


async def test_a_wrong_key_goes_to_the_next_model_at_once(server: ModelServer, retrying: Retrying) -> None:
    """It will not get better by asking again."""
    server.say(Say(status=401), FINE)
    assert (await ask(retrying)).model == SPARE
    assert asked(server) == ["main", "spare"]


@pytest.mark.parametrize("say", [Say(status=400), Say(text="", finish_reason="content_filter")])
async def test_a_refusal_is_nobodys_else_business(server: ModelServer, retrying: Retrying, say: Say) -> None:
    """Neither another try nor another model."""
    server.say(say)
    with pytest.raises(ModelFailed, match=r"refused|filtered"):
        await ask(retrying)
    assert asked(server) == ["main"]


async def test_after_the_first_word_nobody_asks_again(server: ModelServer, retrying: Retrying) -> None:
    """What was said is in the log already."""
    server.say(Say(text=words(9), cut_after=4), FINE)
    with pytest.raises(ModelFailed) as caught:
        await ask(retrying)
    assert caught.value.after_output
    assert asked(server) == ["main"]


async def test_when_all_fail_the_failure_names_all(server: ModelServer, retrying: Retrying) -> None:
    """So that nobody searches in the wrong place."""
    server.say(replace(BROKEN, times=3), Say(status=401))
    with pytest.raises(ModelFailed, match=rf"{MAIN} failed .*; .*credentials for {SPARE}") as caught:
        await ask(retrying)
    assert caught.value.fault.retryable


async def test_a_request_brings_its_own_fallbacks(server: ModelServer, retrying: Retrying) -> None:
    """An agent's entry wins over the deployment; an empty list means none."""
    server.say(Say(status=401), FINE)
    assert (await ask(retrying, fallbacks=("openai/other",))).model == "openai/other"
    server.reset()
    server.say(Say(status=401))
    with pytest.raises(ModelFailed):
        await ask(retrying, fallbacks=())
    assert asked(server) == ["main"]


async def test_the_whole_time_holds_over_all_tries(server: ModelServer, retrying: Retrying, waits: Waits) -> None:
    """A pause that would end too late is not begun."""
    server.say(BROKEN)
    with pytest.raises(ModelFailed):
        await ask(retrying, total_s=1.2)
    assert waits.slept == [0.5]


async def test_leaving_closes_the_request(server: ModelServer, retrying: Retrying) -> None:
    """Through the policy as without it."""
    server.say(Say(text=words(300), stall_after=6))
    pieces = retrying.stream(ModelRequest(model=MAIN, messages=[{"role": "user", "content": "a question"}]))
    await anext(pieces)
    await pieces.aclose()
    await wait_until(lambda: server.ledger[-1].ended == "gone", what="the provider saw the request closed")
