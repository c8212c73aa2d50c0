"""What a session decides about summaries: after which answers one is requested, and what its end leads to."""

from typing import Any

from contracts.runs.payload import Usage
from contracts.runs.requests import Memory
from contracts.sessions.records import RunEnded, SessionRunEnded
from services.planner.sessions import memory
from tests.planner.sessions.test_decide import A, B, C, World, ended, request

MEMORY = Memory(recent_turns=1, summary_model="openai/small")


def summary_of(ended_run: str, **changes: Any) -> SessionRunEnded:
    """The end of the summary's run that was requested after this one."""
    run = memory.summary_run("s", ended_run)
    fields = {"run": run, "outcome": "done", "answer": "So far.", "usage": Usage(model_calls=1), **changes}
    return SessionRunEnded(ended=RunEnded.model_validate(fields), cause="summary", through=A, model="m")


def answered(world: World, run: str) -> tuple[list[str], list[str]]:
    world.take(request(run))
    return world.take(ended(run).model_copy(update={"memory": MEMORY}), f"INBOX:{run}")


def test_a_summary_is_requested_after_an_answer() -> None:
    """Beside the turns: it has none, and a person's next run begins at once."""
    world = World()
    assert answered(world, A) == (["run_ended"], ["WriteEntry"])
    events, found = answered(world, B)
    assert events == ["run_ended", "run_queued"]
    assert found == ["WriteEntry", "RequestSummary"]
    assert world.session.summary_run == memory.summary_run("s", B)
    assert world.session.runs == 2
    assert answered(world, C)[0] == ["run_ended"], "no second one while it is open"
    assert world.take(summary_of(B)) == (["summarised"], ["WriteEntry"])
    assert (world.session.summary, world.session.summary_run) == ("So far.", "")
    assert world.session.usage.model_calls == 1
    assert world.take(summary_of(B))[0] == []


def test_the_request_of_a_summary_is_repeated_until_it_has_ended() -> None:
    """Whoever handles the message again may be the first to carry it out."""
    world = World()
    answered(world, A)
    _, found = answered(world, B)
    message = ended(B).model_copy(update={"memory": MEMORY})
    assert world.take(message)[1] == found
    world.take(summary_of(B))
    assert "RequestSummary" not in world.take(message)[1]
