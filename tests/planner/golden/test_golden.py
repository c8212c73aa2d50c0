"""Recorded runs: every prefix of their logs gives the recorded command and the recorded messages, byte for byte.

A change of wording renews the messages alone, with `UPDATE_SNAPSHOTS=1`.
"""

import hashlib
import json
import os

import pytest

from .encoding import canonical
from .journals import NAMES, Journal
from .scenarios import SCENARIOS


def test_every_scenario_is_recorded() -> None:
    """There is a journal for each scenario, and no other."""
    assert sorted(SCENARIOS) == NAMES
    assert len(NAMES) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_every_prefix_gives_the_same_command(name: str) -> None:
    """Each prefix of the log gives the recorded command, for the same delivery and state of its handling."""
    journal = Journal(name)
    for step in journal.steps():
        assert journal.command(step) == step.command


@pytest.mark.parametrize("name", NAMES)
def test_the_messages_are_the_same(name: str) -> None:
    """The messages of each model call are equal."""
    journal = Journal(name)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        _renew(journal)
    for asked in journal.asked():
        expected = {key: value for key, value in asked.items() if key not in {"after", "agent", "specs"}}
        assert json.dumps(journal.request(asked)) == json.dumps(expected)


def _renew(journal: Journal) -> None:
    texts: dict[str, object] = {}
    for kept, asked in zip(journal.found["asked"], journal.asked(), strict=True):
        for name, value in {**journal.request(asked), "specs": asked["specs"]}.items():
            if name in {"messages", "specs", "tools"} and value is not None:
                kept[name] = [hashlib.sha256(canonical(each).encode()).hexdigest()[:12] for each in value]
                texts.update(zip(kept[name], value, strict=True))
            else:
                kept[name] = value
    journal.found["texts"] = texts
    journal.file.write_text(json.dumps(journal.found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
