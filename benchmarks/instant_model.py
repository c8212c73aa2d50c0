"""What the instant model is to reply, as JSON in the question of a run: it answers at once and costs nothing.

It decides by the length of the conversation alone, so any planner may ask it at any point of a run. Every reply holds
the moment at which it was made (`time.monotonic_ns()`, one clock for all processes of a Linux machine), so the log
tells when each decision was taken; or, with the clock `cpu`, the CPU time that the planner's process had used until
then.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from typing import Literal

import orjson

from services.planner.models.types import Delta, ModelRequest, Reply

TOOL = "instant"
SEPARATOR = ";"
_HEAD, _TAIL = '{"next_node":"final_response","args":{"answer":"', '"}}'


@dataclass(frozen=True)
class Script:
    """A run: `steps` calls of `tool`, a pause of `silent_s`, then an answer of `tokens` moments, one every `pace_s`."""

    steps: int = 0
    tool: str = TOOL
    silent_s: float = 0.0
    tokens: int = 1
    pace_s: float = 0.0
    clock: Literal["moment", "cpu"] = "moment"

    def now(self) -> int:
        """Nanoseconds by its clock."""
        return time.process_time_ns() if self.clock == "cpu" else time.monotonic_ns()

    def query(self) -> str:
        """The question that holds it."""
        return orjson.dumps(asdict(self)).decode()

    @staticmethod
    def of(question: str) -> "Script":
        """Read it back from the question as the model sees it."""
        return Script(**orjson.loads(question[question.index("{") : question.index("}") + 1]))


class InstantModel:
    """A Model (services.planner.models.litellm.model) that follows the script in the question."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply of this turn."""
        messages = request.messages.objects()
        script = Script.of(str(messages[1]["content"]))
        decided = (len(messages) - 2) // 2
        return _call(script) if decided < script.steps else _answer(script)


async def _call(script: Script) -> AsyncGenerator[Delta | Reply, None]:
    text = f'{{"next_node":"{script.tool}","args":{{"at":{script.now()}}}}}'
    yield Delta(text=text)
    yield Reply(text=text)


async def _answer(script: Script) -> AsyncGenerator[Delta | Reply, None]:
    if script.silent_s:
        await asyncio.sleep(script.silent_s)
    said = [_HEAD]
    yield Delta(text=_HEAD)
    due = asyncio.get_running_loop().time()
    for number in range(script.tokens):
        if number and script.pace_s:
            due += script.pace_s
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        said.append(f"{script.now()}{SEPARATOR}")
        yield Delta(text=said[-1])
    said.append(_TAIL)
    yield Delta(text=_TAIL)
    yield Reply(text="".join(said))


def moments(text: str) -> list[int]:
    """The moments in a piece of an answer."""
    return [int(part) for part in text.split(SEPARATOR) if part]
