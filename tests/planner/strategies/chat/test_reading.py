"""What holds for every chat turn, however its text is split, whoever dies: the chunks joined are the answer."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runs import pages
from contracts.runs.events import Cancelled, Chunk, Done, PayloadProposed, Step
from contracts.tools.messages import ToolSpec
from services.planner.models.types import Reply
from services.planner.replies.marked.blocks import Page
from services.planner.replies.marked.scanner import MarkerScanner
from services.planner.run.advance import MAX_LOST
from services.planner.run.commands import Ask, Command, Dispatch, ReadShown, Rules
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Decision
from services.planner.strategies.chat.reading import ChatState, fold
from services.planner.strategies.chat.strategy import Chat
from services.shared.runs.pages.registry import load_pages
from tests.planner.handlings import Attempt, later_token
from tests.planner.run_world import World, finished, started
from tests.support import samples

CHAT = Chat(load_pages(), native_reasoning=True, idle_s=1, total_s=1)
WORK = ToolSpec(name="work", description="Works.", input_schema={"type": "object"})
CALL = ({"function": {"name": "work", "arguments": "{}"}},)
BAD_CALL = ({"function": {"name": "wrok", "arguments": "{}"}},)
ROW = '{"operations": [{"action": "delete", "row_id": 1}]}'
VALUE = '[{"label": "A", "value": "a"}]'
PIECES = [
    *("Hello", " there", ".", "\n\n", " ", "S", "SUGG", "**", "```json\n", "```", "{", "[", '"', "\\", "é", "1. "),
    *(f"**SUGGESTED_VALUES:** {VALUE}", f"DATA_PROPOSAL: {ROW}", "SUGGESTED_VALUES: [1", "DATA_PROPOSAL: {"),
    *("SUGGESTED_VALUES", ": ", VALUE, "**DATA_PROPOSAL**:", ROW, "}"),
]
VIEW = Page(("schema_proposal", "data_proposal"))
texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


class Turn(World):
    """A chat turn of a scripted model, and a listener that follows the reader's rule."""

    def __init__(
        self, parts: list[str], chance: random.Random, *, dies: float = 0.0, stop: str = "", **fields: Any
    ) -> None:
        page = pages.PageView(
            page=pages.Page(name="table_view", table_id="t1"),
            payloads=list(VIEW.payloads),
            base_version=7,
            columns=[{"id": "c1", "name": "Name"}, {"id": "c2", "name": "name"}, {"id": "c3", "name": "Age"}, {}],
        )
        super().__init__(Rules(strategy=CHAT))
        opening = started(**fields).model_copy(
            update={"strategy": "chat", "action_transport": "tools", "page_view": page}
        )
        self.attempt = self.handling("a", started=opening)
        self.parts, self.chance, self.dies, self.stop = parts, chance, dies, stop
        self.shown, self.seen = "", [""]

    def receive(self, chunk: Chunk) -> None:
        """Follow the reader's rule."""
        assert chunk.offset <= len(self.shown), "a gap"
        self.shown = self.shown[: chunk.offset] + chunk.text
        self.seen.append(self.shown)

    def write(self, handling: Attempt, events: Sequence[Any]) -> None:
        super().write(handling, events)
        for event in events:
            if isinstance(event, Chunk):
                self.receive(event)

    def next_reply(self, _: list[Decision]) -> Decision | None:
        """Let the model say a part; None: the planner dies meanwhile."""
        run, asked = self.run, self.run.asked
        assert asked is not None
        text = self.parts[asked.part]
        reading = CHAT.read(run, [WORK])
        count, offset, here = 0, run.strategy_state.shown_to, 0
        stops = bool(self.stop) and asked.part == len(self.parts) - 1
        dies = stops or (asked.attempt < MAX_LOST and self.chance.random() < self.dies)
        dies_at = self.chance.randrange(len(text) or 1) if dies else 1 << 30

        def show(visible: str) -> None:
            nonlocal count, offset
            if visible:
                numbers: Any = {"action_seq": 1, "part": asked.part, "attempt": asked.attempt, "seq": count}
                self.receive(Chunk(offset=offset, text=visible, **numbers))
                count, offset = count + 1, offset + len(visible)

        while here < len(text):
            end = here + self.chance.randint(1, 9)
            show(reading.feed(text[here:end]))
            here = end
            if here > dies_at:
                return None
        calls = () if asked.part == len(self.parts) - 1 else self.chance.choice([CALL, CALL, BAD_CALL])
        decision = reading.decide(Reply(text=text, tool_calls=calls))
        if decision.said is not None:
            assert decision.message.startswith(reading.shown), "nothing that was shown is taken back"
            show(decision.message.removeprefix(reading.shown))
        return replace(decision, chunks=count)

    def carry_out(self, handling: Attempt, command: Command) -> None:
        super().carry_out(handling, command)
        if isinstance(command, ReadShown):
            handling.shown = self.shown[self.run.strategy_state.shown_to :]
        elif isinstance(command, Dispatch):
            call = command.calls[0]
            outcome = finished(call.call_id, tool=call.tool, observation="ok")
            self.attempt = self.handling(call.call_id, outcome, "b")

    def end(self) -> Any:
        """Play the turn, and return its end."""
        while self.run.terminal is None:
            died = isinstance(self.handle(self.attempt)[-1], Ask)
            if died and self.stop and self.run.asked is not None and self.run.asked.part == len(self.parts) - 1:
                self.attempt = self.handling("c", self.stop, "c", now=70_000)
            elif died:
                self.attempt = self.attempt.again(later_token())
        return self.run.terminal

    @property
    def said(self) -> str:
        """The raw text of all parts."""
        return "".join(str(step.said) for step in self.of(Step))


@given(parts=st.lists(texts, min_size=1, max_size=4), seed=st.integers(0, 1 << 30), dies=st.sampled_from([0.0, 0.5]))
def test_the_chunks_joined_are_the_answer(parts: list[str], seed: int, dies: float) -> None:
    """And nothing of a block is ever shown, nor taken back: what listeners have is the beginning of the answer."""
    check_turn(parts, seed, dies)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", samples.seeds(100))
def test_many_turns(seed: int) -> None:
    """The same of a hundred thousand turns, cut into parts and attempts anywhere."""
    rng = random.Random(seed)
    for _ in range(1_000):
        pieces = [rng.choice(PIECES) for _ in range(rng.randint(1, 24))]
        cuts = sorted(rng.randint(0, len(pieces)) for _ in range(rng.randint(0, 3)))
        parts = ["".join(pieces[a:b]) for a, b in zip([0, *cuts], [*cuts, len(pieces)], strict=True)]
        check_turn(parts, rng.randrange(1 << 30), rng.choice([0.0, 0.5]))


def check_turn(parts: list[str], seed: int, dies: float) -> None:
    """Play a turn, and compare it with its whole text at once."""
    turn = Turn(parts, random.Random(seed), dies=dies, max_steps=len(parts) + 1)
    done = turn.end()
    assert isinstance(done, Done)
    assert turn.shown == done.raw_answer
    scanner = MarkerScanner(VIEW)
    scanner.feed(turn.said)
    whole = scanner.finish()[1]
    if whole.message or whole.custom_payload or whole.suggested_values is not None:
        assert done.raw_answer == whole.message
        assert all(whole.message.startswith(seen) for seen in turn.seen)
        assert done.extra.get("suggested_values") == whole.suggested_values
        proposed = [event.data for event in turn.of(PayloadProposed)]
        assert proposed == ([whole.custom_payload["data"]] if whole.custom_payload else [])
    assert set(whole.warnings) <= set(done.warnings)


@given(
    parts=st.lists(texts.map("a".__add__), min_size=1, max_size=3),
    seed=st.integers(0, 1 << 30),
    stop=st.sampled_from(["cancel", "timer"]),
)
def test_a_turn_that_is_stopped_has_said_what_was_shown(parts: list[str], seed: int, stop: str) -> None:
    """A cancel, or the deadline, in the middle of a part. After a cancel nothing but the text counts."""
    turn = Turn(parts, random.Random(seed), stop=stop)
    end = turn.end()
    before = turn.seen[-2] if len(turn.seen) > 1 else ""
    if stop == "cancel":
        assert isinstance(end, Cancelled)
        assert turn.shown == end.payload.raw_answer == before
        assert "cancelled" in end.payload.warnings
        assert end.payload.extra.keys() <= {"tool_positions"}
    else:
        assert (end.reason, end.route) == ("budget_exhausted", "partial")
        assert turn.shown == end.raw_answer
        assert end.raw_answer.startswith(before)


def test_a_proposal_names_columns_by_their_ids() -> None:
    """By id, by name, and by name in other letters; what is unknown stays as it is, for whoever checks it."""
    operation = '{"action": "update", "row_id": 1, "changes": {"Name": 1, "name": 2, "AGE": 3, "x": 5}}'
    twice = '{"action": "add", "data": {"Name": 1, "c1": 4}}'
    turn = Turn([f'Here. DATA_PROPOSAL: {{"operations": [{operation}, 7, {twice}]}}'], random.Random(1))
    done = turn.end()
    [proposed] = turn.of(PayloadProposed)
    assert (proposed.kind, proposed.table_id, proposed.base_version) == ("data_proposal", "t1", 7)
    assert proposed.data["operations"][0]["changes"] == {"c1": 1, "c2": 2, "c3": 3, "x": 5}
    assert proposed.data["operations"][1:] == [7, json.loads(twice)]
    assert done.extra["custom_payload"]["data"] == proposed.data
    assert (done.extra["custom_payload"]["id"], done.extra["custom_payload"]["summary"]) == (
        proposed.payload_id,
        proposed.summary,
    )


def test_a_new_table_is_no_change_of_the_one_that_is_open() -> None:
    """Its proposal is of none."""
    turn = Turn(['SCHEMA_PROPOSAL: {"mode": "create", "operations": [{"action": "add"}]}'], random.Random(1))
    turn.end()
    [proposed] = turn.of(PayloadProposed)
    assert (proposed.table_id, proposed.base_version) == (None, None)


def test_the_message_is_never_shorter_than_it_was() -> None:
    """Whatever a record says."""
    run = Run(strategy_state=ChatState(shown_to=7))
    assert fold(run, Step(step=1, node="look", status="started", shown_to=3)).shown_to == 7


def test_another_proposal_stays_as_it_is() -> None:
    """The changes of a column are no cells."""
    data = '{"mode": "update", "operations": [{"action": "modify", "column_id": "c1", "changes": {"name": "Age"}}]}'
    turn = Turn([f"SCHEMA_PROPOSAL: {data}"], random.Random(1))
    assert turn.end().extra["custom_payload"]["data"] == json.loads(data)


@pytest.mark.parametrize(("keeps", "pending"), [(True, "1f" * 16), (True, None), (False, "1f" * 16)])
def test_a_proposal_is_dropped_while_the_one_before_stays(pending: str | None, *, keeps: bool) -> None:
    """The request says so, and one is pending."""
    turn = Turn([f"Here. DATA_PROPOSAL: {ROW}"], random.Random(1))
    started = turn.attempt.opening.started
    changes = {
        "request": started.request.model_copy(update={"keep_proposal": keeps}),
        "page_view": started.page_view.model_copy(update={"pending_proposal": pending}),
    }
    turn.attempt.opening = replace(turn.attempt.opening, started=started.model_copy(update=changes))
    done = turn.end()
    is_dropped = keeps and pending is not None
    assert (done.raw_answer, "custom_payload" in done.extra) == ("Here.", not is_dropped)
    assert done.warnings == (["proposal_pending"] if is_dropped else [])
