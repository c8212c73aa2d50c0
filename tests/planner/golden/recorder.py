"""Record what a planner does with one run: each delivery, each command, and the messages sent to the model.

The planner is the real one; what it calls is listened to, not replaced.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from contracts.wire.records import Record
from services.messaging.reads import StoredMessage
from services.planner.effects import executor
from services.planner.run.advance import advance
from services.planner.run.commands import Command, Handling, LoadSpecs, Resolve, Rules
from services.planner.run.state.run import Run
from services.planner.strategies.react.strategy import React

from .encoding import Encoder, canonical, places
from .handlings import put_together


@dataclass
class Recording:
    """What was observed of one run, in order."""

    handlings: dict[str, list[tuple[int, dict[str, Any], Command]]] = field(default_factory=dict)
    """By attempt token: after which record, what the handling had received and done, and the command."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    """The rules, without their strategy."""


@contextmanager
def listening() -> Iterator[dict[str, Recording]]:
    """Listen to all planners of this process; yields a recording per run."""
    recordings: dict[str, Recording] = {}
    plain = Encoder()
    request = React.request

    def of_this_run() -> Recording:
        return recordings.setdefault(str(structlog.contextvars.get_contextvars().get("run_id", "")), Recording())

    def listen(run: Run, handling: Handling, rules: Rules) -> Command:
        command = advance(run, handling, rules)
        if isinstance(command, Resolve | LoadSpecs):
            return command  # A journal holds what these give.
        found = of_this_run()
        found.settings = {name: value for name, value in plain.fields(rules).items() if name != "strategy"}
        said = run.seq, plain.fields(put_together(handling)), command
        found.handlings.setdefault(handling.incoming.attempt_token, []).append(said)
        return command

    def listen_to_request(self: React, run: Run, tools: Any, agent: Any) -> Any:
        asked = request(self, run, tools, agent)
        body = {
            name: asked.messages.objects() if name == "messages" else getattr(asked, name)
            for name in ("model", "messages", "tools", "tool_choice", "response_format", "reasoning_effort")
        }
        said = plain.encode(body)
        of_this_run().asked.append(
            {
                "after": run.seq,
                "agent": agent.model_dump(mode="json", exclude_defaults=True),
                "specs": [plain.encode(t) for t in tools],
                **said,
            }
        )
        return asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "advance", listen)
        patch.setattr(React, "request", listen_to_request)
        yield recordings


def journal(recording: Recording, stored: list[StoredMessage]) -> dict[str, Any]:
    records = {sequence: Record.model_validate_json(data) for sequence, data in stored}
    known = places({sequence: record.events for sequence, record in records.items()})
    encoder = Encoder(known)
    texts: dict[str, Any] = {}
    handlings = []
    for steps in recording.handlings.values():
        before: dict[str, Any] = {}
        written = []
        for sequence, fields, command in steps:
            now = _events_by_place(fields, known)
            written.append(
                {
                    "after": sequence,
                    "handling": {name: value for name, value in now.items() if before.get(name) != value},
                    "dropped": sorted(before.keys() - now.keys()),
                    "command": encoder.encode(command),
                }
            )
            before = now
        handlings.append(written)
    for asked in recording.asked:
        for name in ("messages", "specs", "tools"):
            asked[name] = None if asked[name] is None else [_kept(texts, each) for each in asked[name]]
    return {
        "rules": {"$is": "Rules", **recording.settings},
        "records": [
            {
                "seq": sequence,
                "at": record.at,
                "events": [
                    {"type": event.type, **event.model_dump(mode="json", exclude_defaults=True)}
                    for event in record.events
                ],
            }
            for sequence, record in records.items()
        ],
        "handlings": handlings,
        "asked": recording.asked,
        "texts": texts,
    }


def _kept(texts: dict[str, Any], value: Any) -> str:
    name = hashlib.sha256(canonical(value).encode()).hexdigest()[:12]
    texts[name] = value
    return name


def _events_by_place(value: Any, known: dict[str, tuple[int, int]]) -> Any:
    """Put the place of an event in the log where the event was written whole."""
    if isinstance(value, list):
        return [_events_by_place(each, known) for each in value]
    if not isinstance(value, dict):
        return value
    if "$is" in value:
        body = {key: each for key, each in value.items() if key != "$is"}
        if (where := known.get(canonical([value["$is"], body]))) is not None:
            return {"$event": list(where)}
    return {key: _events_by_place(each, known) for key, each in value.items()}
