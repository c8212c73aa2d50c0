"""What a terminal shows of a run."""

import io
from typing import Any

from rich.console import Console

from runwire.cli.screen import Screen


def shown(*events: dict[str, Any]) -> str:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=200, highlight=False))
    for event in events:
        screen.show(event)
    return out.getvalue()


def chunk(seq: int, text: str) -> dict[str, Any]:
    return {"type": "chunk", "seq": seq, "text": text, "action_seq": 1, "attempt": 1}


DONE = {"type": "done", "reason": "answer_complete", "raw_answer": "one two three"}


def test_an_answer_is_shown_once() -> None:
    """As it came in chunks; the end does not repeat it."""
    assert shown(chunk(0, "one "), chunk(1, "two three"), DONE).count("one two three") == 1


def test_what_is_said_beside_an_answer_is_shown() -> None:
    """Confidence, route, follow-up and suggestions."""
    end = {"confidence": 0.825, "route": "partial", "requires_followup": True}
    end["suggested_actions"] = [{"action_id": "export", "label": "As\x1b CSV", "params": {}}]
    text = shown(chunk(0, "one "), DONE | end)
    assert "confidence 82%, route partial, asks for a reply" in text
    assert "CSV (export)" in text
    assert "\x1b" not in text
    assert "confidence" not in shown(chunk(0, "one "), DONE)


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
