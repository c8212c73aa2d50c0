"""The rules find nothing in a sound storm, and each of them notices that something is wrong with one."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import pytest

from tests.system import checker, sound_runs
from tests.system.conversations import rules as of_conversations
from tests.system.conversations import sound as sound_conversations
from tests.system.proposals import rules as of_proposals
from tests.system.proposals import sound as sound_proposals
from tests.system.tasks import rules as of_tasks
from tests.system.tasks import sound as sound_tasks
from tests.system.traces import Evidence, Rule, judge

#: A rule is trusted by those who change it; `make chaos` proves that each can complain.
pytestmark = pytest.mark.chaos


def altered(place: Any) -> Iterator[None]:
    """Alter all that is inside, one value at a time, and leave it so for as long as the caller looks at it."""
    if isinstance(place, list):
        whole = list(place)
        repeated = [[*whole, copy.deepcopy(each)] for each in whole]
        for other in ([], [*whole, "x"], *repeated, *(whole[:n] + whole[n + 1 :] for n in range(len(whole)))):
            place[:] = other
            yield
        place[:] = whole
    members: Any = place if isinstance(place, dict | list) else vars(place)
    for key, value in list(enumerate(members) if isinstance(members, list) else members.items()):
        for other in _others(value):
            members[key] = other
            yield
        members[key] = value
        if isinstance(value, dict | list) or is_dataclass(value):
            yield from altered(value)


def _others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [0, value + 1, value - 1, value + 10_000]
    if isinstance(value, tuple) and value:
        return [(value[0], each) for each in _others(value[-1])]
    return [{"0" * 32}] if isinstance(value, set) else ["x", "failed", "reject", "internal", None, {}]


def _complains(rule: Rule, found: Any) -> bool:
    with contextlib.suppress(Exception):  # What is altered may be beyond all understanding.
        return any(True for _ in rule(found))
    return False


@pytest.mark.parametrize(
    ("sound", "rules"),
    [
        (sound_runs.sound, checker.RULES),
        (sound_conversations.sound, of_conversations.OWN),
        (sound_tasks.sound, of_tasks.OWN),
        (sound_proposals.sound, of_proposals.OWN),
    ],
    ids=["runs", "conversations", "tasks", "proposals"],
)
def test_each_rule_can_complain(sound: Callable[[], Evidence], rules: dict[str, Rule]) -> None:
    """And none does where nothing is wrong."""
    found, silent = sound(), set(rules)
    assert judge(found, rules) == {}
    for _ in altered(found):
        silent -= {name for name in silent if _complains(rules[name], found)}
        if not silent:
            break
    assert not silent
