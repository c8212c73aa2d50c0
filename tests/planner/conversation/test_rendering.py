"""A provider's cache hits: each request begins with the messages of the request before, also after a restart."""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from contracts.artifacts import ImageRef, VisionContextPolicy
from contracts.runs.decisions import Join
from contracts.runs.events import ActionTransport, RunStarted, Step
from contracts.runs.requests import RunRequested
from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.conversation.rendering import Renderer
from services.planner.models.types import ModelRequest
from services.planner.run.commands import Command, Dispatch, Rules
from services.planner.run.state.fold import fold
from services.planner.run.state.history import Conversation, Decided
from services.planner.run.state.run import Run, begin_history
from services.planner.run.turn.decision import Calls, Decision, Final, Invalid
from services.planner.strategies.react.strategy import React
from tests.planner.handlings import Attempt
from tests.planner.run_world import World, finished, started
from tests.planner.shown_images import png
from tests.support.model_server import words

WORK = ToolSpec(name="work", input_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
TRANSPORTS: tuple[ActionTransport, ...] = ("json", "tools")
STEPS = 30


def react() -> React:
    """A strategy of a planner that has just started."""
    return React(native_reasoning=True, idle_s=1, total_s=1)


def opening(transport: ActionTransport) -> RunStarted:
    """A run with an image in its question, whose model sees the images of its tools."""
    images = [ImageRef(artifact_id="0" * 32, mime_type="image/png")]
    policy = VisionContextPolicy(enabled=True, allowed_sources=["work"], max_images=9)
    changes = {"action_transport": transport, "images": images, "vision_context": policy}
    return started(max_steps=STEPS, max_tool_calls=1000).model_copy(update=changes)


def decisions() -> Iterator[Decision]:
    """One call, a repair, calls at once, and a plan with a join, over and over; then two repairs and the answer."""
    broken = Invalid(complaint="no JSON", reply="{")
    for turn in range(1, STEPS):
        if turn % 4 == 2:
            yield broken
        count = 3 if turn % 4 in {2, 3} else 1
        args = (("work", {"n": turn, "text": words(20)}),) * count
        yield Calls(node="plan" if count > 1 else "work", calls=args, join=Join(node="work") if turn % 4 == 3 else None)
    yield broken
    yield broken
    yield Final(args={"answer": "done"})


class Recorded(World):
    """A long run, played without a server. After each `restart_every` requests another planner goes on."""

    def __init__(
        self,
        transport: ActionTransport,
        *,
        max_characters: int = 1 << 40,
        restart_every: int = 0,
        conversation: Conversation | None = None,
    ) -> None:
        super().__init__()
        self.conversation = conversation
        self.max_characters, self.restart_every = max_characters, restart_every
        self.requests: list[tuple[int, list[dict[str, Any]]]] = []
        """Number of stable messages, and all messages."""
        self.stable: list[ModelRequest] = []
        """The requests with the stable messages alone."""
        self.restart()
        self.waiting = [self.handling("REQUESTS:1", started=opening(transport))]
        self.decisions = decisions()
        while self.waiting:
            self.handle(self.waiting.pop(0))

    def restart(self) -> None:
        """Begin with nothing but the log."""
        self.react, self.run = react(), Run()
        self.rules = Rules(strategy=self.react, max_characters=self.max_characters)
        for number, events in enumerate(self.written, 1):
            fold(self.run, number, 2000, events)
        self.begin_history()

    def begin_history(self) -> None:
        """Add what was said before the run, once the run is known, as `RunLogs` does."""
        if self.conversation is not None and self.run.started is not None:
            begin_history(self.run, self.conversation)

    def write(self, handling: Attempt, events: Sequence[Any]) -> None:
        super().write(handling, events)
        self.begin_history()

    def next_reply(self, _: list[Decision]) -> Decision:
        """Keep the request, which another planner may make."""
        if self.restart_every and len(self.requests) % self.restart_every == 0:
            self.restart()
        request = self.react.request(self.run, [WORK], Agent())
        system = request.messages.objects()[0]
        stable = self.react._renderer.request(self.run, system, [])
        self.requests.append((len(stable.objects()), request.messages.objects()))
        self.stable.append(replace(request, messages=stable))
        return next(self.decisions)

    def carry_out(self, handling: Attempt, command: Command) -> None:
        """The calls that are sent have outcomes."""
        super().carry_out(handling, command)
        for call in command.calls if isinstance(command, Dispatch) else ():
            picture = base64.b64encode(png(len(self.written) % 7)).decode()
            done = finished(call.call_id, observation={"text": words(30)}, artifacts={"chart": picture})
            self.waiting.append(self.handling(f"INBOX:{call.call_id}", done))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_request_begins_with_the_one_before(transport: ActionTransport) -> None:
    """Byte for byte; what holds for one turn, such as repairs and budgets, comes last."""
    requests = Recorded(transport).requests
    assert len(requests) > STEPS
    for (stable, before), (_, after) in pairwise(requests):
        assert json.dumps(after[:stable]) == json.dumps(before[:stable])
    texts = [json.dumps(message) for message in requests[-1][1]]
    assert "image" in "".join(texts)
    assert "Answer now" in texts[-1]
    assert "no JSON" in texts[-2]
    assert "no JSON" not in "".join(texts[: requests[-1][0]])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_another_planner_sends_the_same_bytes(transport: ActionTransport) -> None:
    """It knows the log and nothing else; compactions included."""
    live, restarted = (Recorded(transport, max_characters=4000, restart_every=every) for every in (0, 3))
    assert "compacted" in live.types()
    assert json.dumps(restarted.requests) == json.dumps(live.requests)
    assert restarted.written == live.written


def asked_once(query: str) -> Run:
    """A run with nothing but a question."""
    run = Run()
    request = RunRequested(run_id="0" * 32, tenant="t", requested_at=0, trace_id="0", query=query)
    fold(run, 1, 0, [started().model_copy(update={"request": request})])
    return run


def shown(renderer: Renderer, run: Run) -> list[dict[str, Any]]:
    return renderer.request(run, SYSTEM, []).objects()[1:]


@pytest.mark.parametrize("keeps", [True, False])
def test_only_new_items_are_rendered(*, keeps: bool) -> None:
    """The cost of a step does not grow with the steps before it; an item that is not needed any more is dropped."""
    run, renderer = asked_once("why?"), Renderer(lambda _: keeps)
    for number in range(5):
        before = shown(renderer, run)
        run.history.add(Decided(Step(step=number, node="final_response", status="started", answer=f"no {number}")))
        assert len(shown(renderer, run)) == len(before) + 1
        assert shown(renderer, run)[: len(before)] == before
    assert (len(run.history.items), run.history.dropped) == ((6, 0) if keeps else (0, 6))
    with nullcontext() if keeps else pytest.raises(AssertionError):
        Renderer().length(run)


SYSTEM = {"role": "system", "content": "Be brief."}
