"""What a terminal shows of a run."""

import io
from typing import Any

from rich.console import Console

from runwire.cli.views.screen import Screen


def shown(*events: dict[str, Any]) -> str:
    """The text of a terminal after these events."""
    out = io.StringIO()
    screen = Screen(Console(file=out, width=200, highlight=False))
    for event in events:
        screen.show(event)
    return out.getvalue()


def chunk(seq: int, text: str) -> dict[str, Any]:
    """A chunk of the answer."""
    return {"type": "chunk", "seq": seq, "text": text, "action_seq": 1, "attempt": 1}


DONE = {"type": "done", "reason": "answer_complete", "raw_answer": "one two three"}


def test_an_answer_is_shown_once() -> None:
    """As it came in chunks; the end does not repeat it."""
    assert shown(chunk(0, "one "), chunk(1, "two three"), DONE).count("one two three") == 1


def test_an_answer_whose_first_chunks_have_expired_is_shown_from_the_end() -> None:
    """The last chunk stays in the log, and would be a part without a beginning."""
    text = shown(chunk(4, "three"), DONE)
    assert text.count("three") == text.count("one two three") == 1


def test_nothing_that_is_shown_controls_the_terminal() -> None:
    """Models, tools and users write the text; its lines stay."""
    failed = {
        "type": "observed",
        "tool": "t",
        "status": "failed",
        "failure": {"reason": "no\x1b[2J\x07 [red]way", "code": "c"},
    }
    text = shown(failed, chunk(0, "a\x1b]0;title\x07\nb\u202e"), DONE)
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "no\ufffd[2J\ufffd [red]way" in text
    assert "a\ufffd]0;title\ufffd\nb\ufffd" in text


def test_a_pause_is_shown_with_the_command_that_decides() -> None:
    """And so are what was decided, and what people add."""
    text = shown(
        {"type": "queued"},
        {"type": "run_started", "run_id": "0" * 32},
        {"type": "paused", "pause_id": "a" * 32, "reason": "approval", "tool": "pay", "title": "Pay\x1b it"},
        {"type": "resumed", "pause_id": "a" * 32, "decision": "reject", "by": "ann", "note": "no\x1b"},
        {"type": "paused", "reason": "budget", "budget": "max_steps: 2"},
        {"type": "input_added", "text": "in euros"},
    )
    assert "waits for its turn" in text
    assert "waits for a person: approval · pay · Pay\ufffd it" in text
    assert f"approve {'0' * 32}/aaaaaaaa" in text
    assert "reject by ann no\ufffd" in text
    assert "waits for a top-up: max_steps: 2 is spent" in text
    assert "added: in euros" in text


def test_the_errors_of_a_plan_are_shown() -> None:
    """By the call that has them, or of the plan as a whole."""
    wrong = {"tool_index": 0, "argument": "id", "template": "$0.output.\x1bx", "error": {"type": "self_reference"}}
    whole = {"tool_index": None, "argument": "", "template": "", "error": {"type": "unknown_type"}}
    newer = {"tool_index": 0, "argument": "", "template": "", "error": {"type": "of_a_newer_gateway"}}
    plan = {"reasoning": "", "calls": [{"tool_name": "find"}]}
    step = {"type": "step", "step": 1, "node": "plan", "status": "invalid", "plan": plan, "errors_left_out": 3}
    text = shown({**step, "errors": [wrong, whole, newer]})
    assert "✗ plan invalid" in text
    assert "✗ Call 0 (find), argument id: template $0.output. x - this refers to its own call" in text
    assert "✗ the plan has no known type" in text
    assert "✗ of_a_newer_gateway" in text
    assert "and 3 more errors" in text


def test_a_call_that_is_announced_again_is_shown_once() -> None:
    """By another planner that goes on with it. With other arguments, as a person wrote them, it is shown again."""
    call = {"call_id": "1-1", "tool": "pay", "args": {"amount": 5}, "direct": "a" * 32}
    step = {"type": "step", "step": 1, "node": "pay", "status": "started", "calls": [call]}
    again = {"type": "called", "step": 1, "calls": [{**call, "direct": None}]}
    edited = {"type": "called", "step": 1, "calls": [{**call, "args": {"amount": 4}}]}
    assert shown(step, again).count("→ pay") == 1
    assert shown(step, again, edited, edited).count("→ pay") == 2
