"""The last words of an answer, stored with its end: every character once, whenever the planner is killed."""

import asyncio

import pytest

from contracts.runs.events import Chunk
from contracts.wire import subjects
from contracts.wire.records import Record
from tests.planner.conftest import Plan
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, Say, answer, words
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, Story, planning

TEXT = words(40)
SLOWLY = Say(text=answer(TEXT).text, piece=20, pause_s=0.002)
AT_ONCE = Say(text=answer(TEXT).text, piece=10_000)


async def log_of(planner: Planning, run: str) -> list[Record]:
    stored = await (await planner.bus.reader(subjects.RUNS)).read(subjects.log("default", run), 1)
    return [Record.model_validate_json(data) for _, data in stored]


async def stream_of(planner: Planning, run: str) -> list[int]:
    stored = await (await planner.bus.reader(subjects.RUNS)).read(subjects.stream("default", run), 1)
    return [sequence for sequence, _ in stored]


async def check(planner: Planning, story: Story) -> None:
    """One end, whose answer the newest chunks are; who reads the log alone gets the last words too."""
    records = await log_of(planner, story.run)
    assert [event.type for record in records for event in record.events].count("done") == 1
    assert story.end.raw_answer == story.shown() == TEXT
    last = records[-1].events[0]
    assert isinstance(last, Chunk)
    assert last.done
    assert story.chunks()[-1] == last
    stream = await stream_of(planner, story.run)
    assert story.end.last_stream_seq in {None, max(stream, default=0)}


@pytest.mark.parametrize("reply", [SLOWLY, AT_ONCE], ids=["slowly", "at once"])
async def test_the_last_words_are_in_the_record_of_the_end(plan: Plan, provider: ModelServer, reply: Say) -> None:
    """The stream holds one record less; a reply that comes at once needs none."""
    planner = await plan()
    provider.say(reply)
    story = await planner.tell()
    await check(planner, story)
    stream = await stream_of(planner, story.run)
    assert len(stream) == len(story.chunks()) - 1
    assert story.end.last_stream_seq == max(stream, default=0)
    assert (await log_of(planner, story.run))[-1].types() == "chunk,step,step,done"


@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", ["before", "stored", "known"])
@pytest.mark.parametrize(
    ("reply", "what"),
    [(SLOWLY, '"seq":1,'), (SLOWLY, '"type":"done"'), (AT_ONCE, '"type":"done"')],
    ids=["a chunk", "the end", "the end with the whole answer"],
)
async def test_a_killed_planner_shows_every_character_once(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, reply: Say, what: str, moment: str
) -> None:
    """Before the record is sent, when it is stored, and when that is known. A listener follows from the beginning."""
    url = own_nats_server.url
    provider.say(reply)
    dying = DyingPlanner(url, provider.url, what, moment)
    run = await client.ask()
    following = asyncio.create_task(client.ended(run, 60))
    await dying.dead()
    async with planning(url, provider) as planner:
        story = await following
        await check(planner, story)
    was_stored = what == '"type":"done"' and moment != "before"
    assert len(provider.ledger) == (1 if was_stored else 2)
    assert max(chunk.attempt for chunk in story.chunks()) == (1 if was_stored else 2)
    usage = story.end.usage  # No provider tells what the request of the killed planner has cost.
    assert (usage.model_calls, usage.estimated) == ((1, False) if was_stored else (2, True))
    assert was_stored or usage.prompt_tokens > 500
