"""A provider whose script is in the question, as JSON in base64: what it decides in each turn, then the answer.

The turn is the number of its replies since the newest question; a question without a script, as that of a report, is
answered at once, and in one case of six with a task first. `$group` in a script becomes the newest group's id.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Self

from tests.support.model_server import Say, Seen, action, answer
from tests.system.model import PlannedModel, newest, text_of, written

Action = dict[str, Any]
"""`{"node": …, "args": …}`."""
Turn = list[Action]
"""Several actions: a plan of parallel calls."""

_QUESTION, _END_OF_QUESTION = "<question>", "</question>"
_GROUP = re.compile(r'group_id\\*": ?\\*"([0-9a-f]{32})')
_TASK = re.compile(r'task_id\\*": ?\\*"([0-9a-f]{32})')
_FOLLOW_UP_EVERY = 6


@dataclass(frozen=True)
class Script:
    """What a run does. `fails`: the provider refuses every request of it. `delay_ms`: before each reply."""

    turns: tuple[Turn, ...] = ()
    says: str = "done"
    delay_ms: int = 0
    pace_ms: int = 0
    fails: bool = False

    @property
    def query(self) -> str:
        """The question that makes the model do this."""
        return written(self)

    @classmethod
    def read(cls, text: str) -> Self | None:
        found = newest(text)
        return cls(**found) if found is not None else None

    def reply(self, turn: int, text: str) -> Say:
        """What the model says when it has spoken `turn` times. `text`: of the whole conversation."""
        if self.fails:
            return Say(status=400)
        said = answer(self.says) if turn >= len(self.turns) else _decision(self.turns[turn], text)
        return Say(text=said.text, delay_s=self.delay_ms / 1000, pause_s=self.pace_ms / 1000)


class TasksModel(PlannedModel):
    """The provider on loopback."""

    def reply_to(self, seen: Seen) -> Say:
        self.ledger.append(seen)
        question, turn = "", 0
        for message in seen.body.get("messages", []):
            if message["role"] == "assistant":
                turn += 1
            elif message["role"] == "user" and _QUESTION in (text := text_of(message)):
                question, turn = text.rpartition(_QUESTION)[2].partition(_END_OF_QUESTION)[0], 0
        script = Script.read(question) or _without_script(seen.text)
        return script.reply(turn, seen.text)


def job(tool: str, ms: int, **more: Any) -> Action:
    return {"node": "task", "args": {"mode": "job", "tool": tool, "tool_args": {"ms": ms}, **more}}


def subagent(script: Script, **more: Any) -> Action:
    return {"node": "task", "args": {"mode": "subagent", "query": script.query, **more}}


def call(tool: str, **args: Any) -> Action:
    return {"node": tool, "args": args}


def _decision(turn: Turn, text: str) -> Say:
    groups = _GROUP.findall(text)
    said = json.dumps(turn).replace("$group", groups[-1] if groups else "0" * 32)
    filled: Turn = json.loads(said)
    if len(filled) == 1:
        return action(filled[0]["node"], **filled[0]["args"])
    return action("plan", steps=filled)


def _without_script(text: str) -> Script:
    """Of a report: the ids in what it is shown decide whether it spawns another task."""
    tasks = _TASK.findall(text)
    follows = bool(tasks) and int(tasks[-1], 16) % _FOLLOW_UP_EVERY == 0
    return Script(turns=([job("once", 20)],) if follows else (), says="reported")
