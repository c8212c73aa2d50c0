"""Read a golden journal and play it again: fold a prefix of its log, then call `advance` and the strategy."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.wire.records import Record
from services.planner.agents import Agent
from services.planner.run.advance import advance
from services.planner.run.commands import Rules
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run
from services.planner.strategies.react.strategy import React

from .encoding import Encoder, decode, places
from .handlings import Handling, taken_apart

FOLDER = Path(__file__).parent / "journals"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@dataclass
class Step:
    """One command of a handling: after which record, for which state of the handling, and what it was."""

    after: int
    handling: dict[str, Any]
    command: Any


class Journal:
    """One recorded run."""

    def __init__(self, name: str) -> None:
        self.file = FOLDER / f"{name}.json"
        self.found: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        self.records = {
            each["seq"]: Record.model_validate({"at": each["at"], "events": each["events"]})
            for each in self.found["records"]
        }
        self.log = {sequence: record.events for sequence, record in self.records.items()}
        self.encoder = Encoder(places(self.log))
        self.react = React(native_reasoning=True, idle_s=1, total_s=1)
        settings = {name: value for name, value in self.found["rules"].items() if name != "$is"}
        self.rules = Rules(strategy=self.react, **settings)

    def run(self, after: int) -> Run:
        """The run as its log stood after a record."""
        run = Run()
        for sequence, record in self.records.items():
            if sequence <= after:
                fold(run, sequence, record.at, record.events)
        return run

    def steps(self) -> Iterator[Step]:
        """Every command, in the order of its handling."""
        for steps in self.found["handlings"]:
            handling: dict[str, Any] = {}
            for each in steps:
                changed = handling | each["handling"]
                handling = {name: value for name, value in changed.items() if name not in each["dropped"]}
                yield Step(each["after"], handling, each["command"])

    def command(self, step: Step) -> Any:
        handling = Handling(**{name: decode(value, self.log) for name, value in step.handling.items()})
        return self.encoder.encode(advance(self.run(step.after), taken_apart(handling), self.rules))

    def asked(self) -> list[dict[str, Any]]:
        """Each request to the model, with its texts in place."""
        texts = self.found["texts"]
        found = []
        for each in self.found["asked"]:
            kept = {
                name: each[name] and [texts[text] for text in each[name]] for name in ("messages", "specs", "tools")
            }
            found.append(each | kept)
        return found

    def request(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Today's request to the model, in the form of the journal."""
        specs = [decode(spec, self.log) for spec in asked["specs"]]
        made = self.react.request(self.run(asked["after"]), specs, Agent.model_validate(asked["agent"]))
        return {
            name: self.encoder.encode(made.messages.objects() if name == "messages" else getattr(made, name))
            for name in ("model", "messages", "tools", "tool_choice", "response_format", "reasoning_effort")
        }
