"""Values of the planner as JSON and back: contracts, dataclasses of the planner, sets and tuples.

An event that stands in the log of the same journal is written as `{"$event": [record, index]}`, so that a journal says
everything once.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from contracts.runs import events
from contracts.runs.decisions import Join
from contracts.runs.inbox import CallFinished, TimerFired
from contracts.runs.payload import Usage
from contracts.runs.requests import RunLimits
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from services.planner.run import commands
from services.planner.run.turn import decision

_CONTRACTS: dict[str, type[BaseModel]] = {
    kind.__name__: kind
    for kind in [*vars(events).values(), Join, Fault, CallFinished, TimerFired, Usage, RunLimits, ToolSpec]
    if isinstance(kind, type) and issubclass(kind, BaseModel)
}
_DATACLASSES: dict[str, Any] = {
    kind.__name__: kind
    for module in (decision, commands)
    for kind in vars(module).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
}


def canonical(value: Any) -> str:
    """One text for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def places(log: Mapping[int, Sequence[BaseModel]]) -> dict[str, tuple[int, int]]:
    """The place of each event of a log, by the canonical text of the event."""
    return {
        canonical([type(event).__name__, event.model_dump(mode="json", exclude_defaults=True)]): (sequence, index)
        for sequence, events in log.items()
        for index, event in enumerate(events)
    }


class Encoder:
    """Writes values; `known` are events of the log by their canonical text."""

    def __init__(self, known: Mapping[str, tuple[int, int]] | None = None) -> None:
        self._known = known or {}

    def encode(self, value: Any) -> Any:
        """A JSON value from which `decode` makes an equal one."""
        if isinstance(value, BaseModel):
            body = value.model_dump(mode="json", exclude_defaults=True)
            where = self._known.get(canonical([type(value).__name__, body]))
            return {"$event": list(where)} if where else {"$is": type(value).__name__, **body}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {"$is": type(value).__name__, **self.fields(value)}
        if isinstance(value, set | frozenset):
            return {"$set": sorted((self.encode(each) for each in value), key=canonical)}
        if isinstance(value, tuple):
            return {"$tuple": [self.encode(each) for each in value]}
        if isinstance(value, list):
            return [self.encode(each) for each in value]
        if isinstance(value, Mapping):
            return {key: self.encode(each) for key, each in value.items()}
        return value

    def fields(self, value: Any) -> dict[str, Any]:
        """The fields of a dataclass that are not at their defaults."""
        found = {}
        for field in dataclasses.fields(value):
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            each = getattr(value, field.name)
            if each != default:
                found[field.name] = self.encode(each)
        return found


def decode(value: Any, log: Mapping[int, list[Any]]) -> Any:
    """What `encode` was given; `log`: the events of each record."""
    if isinstance(value, list):
        return [decode(each, log) for each in value]
    if not isinstance(value, dict):
        return value
    if "$event" in value:
        record, index = value["$event"]
        return log[record][index]
    if "$set" in value:
        return {decode(each, log) for each in value["$set"]}
    if "$tuple" in value:
        return tuple(decode(each, log) for each in value["$tuple"])
    if "$is" not in value:
        return {key: decode(each, log) for key, each in value.items()}
    body = {key: each for key, each in value.items() if key != "$is"}
    if (contract := _CONTRACTS.get(value["$is"])) is not None:
        return contract.model_validate(body)
    return _DATACLASSES[value["$is"]](**{key: decode(each, log) for key, each in body.items()})
