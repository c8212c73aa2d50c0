"""What a reply of the model means: one of four things, each with what the run must remember of it."""

from dataclasses import dataclass, field
from typing import Any

from contracts.actions import Join
from contracts.faults import Fault
from contracts.payload import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Common to all: the model's reasons, and what the reply cost."""

    thought: str | None = None
    reasoning: str | None = None
    usage: Usage = field(default_factory=Usage)
    warnings: tuple[str, ...] = ()
    resolved_at: int | None = None
    """Unix ms at which it was settled what the reply comes to in its run; None: that is still open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(Decision):
    """Tools are to be called: one, or the branches of a plan with an optional join. `node` is the tool's name or `plan`."""

    node: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    join: Join | None = None
    note: str | None = None
    """One line for the model beside the results, such as why its join will not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Final(Decision):
    """The run ends with an answer. `args` are those of `final_response`, as the model gave them."""

    args: dict[str, Any]
    has_text: bool = True
    """False: the answer itself is missing; it is asked for once, alone."""
    judged: bool = False
    """It was judged already, and a better one did not come."""
    restate: bool = False
    """What was shown of the reply is not how the answer begins: it has to be shown again, under a new attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid(Decision):
    """The reply is no action, or one that cannot be carried out. `complaint` says what is wrong; the model is told and asked again."""

    complaint: str
    reply: str
    node: str = "invalid"
    """What was to be done, where the reply says so."""
    salvage: Decision | None = None
    """What to make of the reply when the model may not be asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Decision):
    """The model gave no reply. `again`: asking once more may help."""

    fault: Fault
    again: bool = False
