"""Asks real providers what they can do, and writes docs/rules/tried.md: `make providers`.

Rule 1: a model is asked as a run asks it: the same prompt, client and reading of replies, with the settings of the
planner (`RUNWIRE_*`) and the providers' own variables. A model costs five short requests.
Rule 2: the listed models are asked whose provider has a key, then a local Ollama's newest, then those that the command
line names. Other rows of the table stay as they are.
Rule 3: a failure is shown by its code and reason, which hold no text of the provider, no key and no prompt.
"""

import asyncio
import base64
import os
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from contracts.runs.events import ActionTransport, RunStarted
from contracts.runs.requests import RunLimits, RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire.operation import MODEL_BY_KEY
from services.planner.agents import Agent
from services.planner.app import models_of
from services.planner.conversation.encoding import Messages
from services.planner.models.by_provider import local_models
from services.planner.models.errors import ModelFailed
from services.planner.models.providers import PROVIDERS
from services.planner.models.refusals import WithoutRefusedFields
from services.planner.models.types import Delta, Model, ModelRequest, Reply
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run
from services.planner.run.turn.decide import FIELD_REFUSED
from services.planner.run.turn.decision import Calls, Decision
from services.planner.settings import PlannerSettings
from services.planner.strategies.base import Reading
from services.planner.strategies.react.strategy import React
from services.runtime.settings import read_settings

DOCS = Path(__file__).parents[1] / "docs" / "rules" / "tried.md"
LISTED = (
    *MODEL_BY_KEY.values(),
    "together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo",
    "fireworks_ai/llama-v3p3-70b-instruct",
)
HEAD = "| model | JSON action | native tools | reasoning | images | usage | asked on |"
NEVER = "never asked"
IDLE_S, TOTAL_S = 60.0, 120.0
MAX_OUTPUT_TOKENS = 4000
ORDERS = ToolSpec(
    name="count_orders",
    description="Return the number of open orders of a customer.",
    input_schema={"type": "object", "properties": {"customer": {"type": "string"}}, "required": ["customer"]},
)
QUESTION = "How many open orders does ACME have?"
IMAGE_QUESTION, IMAGE_ANSWER = "What colour is this image? Answer with one word.", "red"


@dataclass(frozen=True, slots=True)
class Row:
    """What a model can do: `yes`, `no`, a note, or the code of a failure."""

    model: str
    json_action: str = NEVER
    native_tools: str = "–"
    reasoning: str = "–"
    images: str = "–"
    usage: str = "–"
    asked_on: str = "–"


class Asking:
    """Asks one model."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name
        self._react = React(native_reasoning=True, idle_s=IDLE_S, total_s=TOTAL_S)

    async def row(self) -> Row:
        """Ask everything."""
        row = Row(self._name, asked_on=f"{datetime.now(UTC):%Y-%m-%d}")
        try:
            decision, reply, note = await self._decision("json")
        except ModelFailed as error:
            return replace(row, json_action=self._failed("JSON action", error))
        native, reasoning, images = [await answer for answer in (self._native(), self._reasoning(), self._images())]
        return replace(
            row,
            json_action=_said(is_good=_calls_the_tool(decision)) + note,
            native_tools=native,
            reasoning=reasoning,
            images=images,
            usage=_said(is_good=not reply.usage.estimated),
        )

    async def _native(self) -> str:
        try:
            decision, _, _ = await self._decision("tools")
        except ModelFailed as error:
            return self._failed("native tools", error)
        return _said(is_good=_calls_the_tool(decision))

    async def _reasoning(self) -> str:
        try:
            _, reply, _ = await self._decision("json", effort=True)
        except ModelFailed as error:
            return self._failed("reasoning", error)
        return _said(is_good=bool(reply.reasoning or reply.usage.reasoning_tokens))

    async def _images(self) -> str:
        url = f"data:image/png;base64,{base64.b64encode(red_square()).decode()}"
        content = [{"type": "text", "text": IMAGE_QUESTION}, {"type": "image_url", "image_url": {"url": url}}]
        messages = Messages.of([{"role": "user", "content": content}])
        try:
            reply = await self._reply(ModelRequest(model=self._name, messages=messages))
        except ModelFailed as error:
            return self._failed("images", error)
        return _said(is_good=IMAGE_ANSWER in reply.text.lower())

    async def _decision(self, transport: ActionTransport, *, effort: bool = False) -> tuple[Decision, Reply, str]:
        """Ask for an action. Returns what it leads to, the reply, and a note for the table."""
        request = RunRequested(run_id="0" * 32, tenant="default", requested_at=0, trace_id="0" * 32, query=QUESTION)
        started = RunStarted(
            run_id=request.run_id,
            tenant=request.tenant,
            request=request,
            limits=RunLimits(),
            tools={ORDERS.name: "0" * 24},
            model=self._name,
            effort="low" if effort else None,
            action_transport=transport,
        )
        run = Run()
        fold(run, 1, 0, [started])
        asked, reading, note = self._react.request(run, [ORDERS], Agent()), self._react.read(run, [ORDERS]), ""
        while True:
            try:
                reply = await self._reply(asked, reading)
            except ModelFailed as error:
                if error.fault.code not in FIELD_REFUSED:
                    raise
                note += f", without `{error.fault.reason.rpartition(' with ')[2]}`"
            else:
                return reading.decide(reply), reply, note

    async def _reply(self, request: ModelRequest, reading: Reading | None = None) -> Reply:
        limited = replace(request, timeout_s=IDLE_S, total_s=TOTAL_S, max_tokens=MAX_OUTPUT_TOKENS)
        async with aclosing(self._model.stream(limited)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply):
                    return piece
                if reading is not None:
                    feed(piece, reading)
        raise AssertionError("a model's stream ends with its Reply")

    def _failed(self, what: str, error: ModelFailed) -> str:
        print(f"{self._name}: {what}: {error.fault.reason}")
        return f"failed: {error.fault.code}"


def feed(piece: Delta, reading: Reading) -> None:
    """Read a part of a reply."""
    if piece.text:
        reading.feed(piece.text)
    if piece.call is not None:
        reading.feed_call(piece.call)


def _calls_the_tool(decision: Decision) -> bool:
    return isinstance(decision, Calls) and decision.node == ORDERS.name


def _said(*, is_good: bool) -> str:
    return "yes" if is_good else "no"


def red_square(side: int = 64) -> bytes:
    """A PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff\0\0" * side) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def has_key(model: str, environment: Mapping[str, str]) -> bool:
    """Whether a variable holds the key of the model's provider."""
    provider = PROVIDERS.get(model.partition("/")[0])
    keys = provider.keys if provider else [key for key, default in MODEL_BY_KEY.items() if default == model]
    return any(environment.get(key, "").strip() for key in keys)


def written(docs: str, rows: Sequence[Row]) -> str:
    """Return the text of docs/rules/tried.md with these rows in its table, and with all listed models."""
    before, head, rest = docs.partition(HEAD + "\n")
    if not head:
        raise SystemExit(f"{DOCS} has no table with the head {HEAD}")
    lines = rest.split("\n")
    end = next(number for number, line in enumerate(lines) if not line.startswith("|"))
    known = {line.split("`")[1]: line for line in lines[1:end]}
    known = {name: _line(Row(name)) for name in LISTED} | known | {row.model: _line(row) for row in rows}
    return before + head + "\n".join([lines[0], *known.values(), *lines[end:]])


def _line(row: Row) -> str:
    model, *cells = astuple(row)
    return f"| {' | '.join([f'`{model}`', *cells])} |"


async def ask(named: Sequence[str]) -> list[Row]:
    """Ask every listed model that has a key, a local Ollama's newest, and these, one after the other."""
    listed = [name for name in LISTED if has_key(name, os.environ)]
    local = [f"ollama_chat/{name}" for name in (await local_models())[:1]]
    models = models_of(read_settings(PlannerSettings), os.environ)
    try:
        return [
            await Asking(WithoutRefusedFields(models), name).row() for name in dict.fromkeys([*listed, *local, *named])
        ]
    finally:
        await models.aclose()


def main(named: Sequence[str]) -> None:
    """Ask, and write the table."""
    rows = asyncio.run(ask(named))
    if not rows:
        print(
            "No provider's key is set and no local Ollama answers: nobody is asked, and the table stays as it is.",
            f"Keys are read from {', '.join(MODEL_BY_KEY)} and the variables of docs/rules/providers.md.",
            'Name a model of a server of your own with: make providers ARGS="hosted_vllm/<its name>"',
            sep="\n",
        )
        return
    DOCS.write_text(written(DOCS.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print(HEAD, *map(_line, rows), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
