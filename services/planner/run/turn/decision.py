"""The kinds of decision that a model's reply can mean, each with the data that the run records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.runs.decisions import FINAL_RESPONSE, Join
from contracts.runs.events import Chunk, Thinking
from contracts.runs.payload import Usage
from contracts.runs.requests import Effort
from contracts.runs.step_events import Opaque, ReplyForm, ReplyShape
from contracts.wire.faults import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    """Fields of every decision: the model's reasons, and what the reply cost."""

    thought: str | None = None
    reasoning: str | None = None
    usage: Usage = field(default_factory=Usage)
    warnings: tuple[str, ...] = ()
    form: ReplyForm | None = None
    """How the model wrote it."""
    opaque: Opaque | None = None
    """What the provider wants to see again with the calls of this reply."""
    resolved_at: int | None = None
    """Unix ms when the decision was resolved against the run's limits (`resolve_decision`); None: not yet."""
    last_words: tuple[Chunk | Thinking, ...] = ()
    """The end of what the reply shows. It is not stored on the run's stream, but with the decision."""
    stream_seq: int = 0
    """Sequence of the newest record that the model call stored on the run's stream; 0: none."""
    chunks: int = 0
    """How many chunks the model call has shown, `last_words` included."""
    restate: bool = False
    """The streamed text is not a prefix of the answer, so the answer is streamed again under a new attempt."""
    said: str | None = None
    """The raw text of a reply that is a part of one message; None: it is no such part."""
    message: str = ""
    """That message, up to the end of this part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(_Common):
    """Call one tool, or the branches of a plan with an optional join. `node` is the tool's name or `plan`."""

    node: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    join: Join | None = None
    note: str | None = None
    """One line that the model receives with the results, such as the reason why its join will not run."""
    refused: Mapping[int, Fault] = field(default_factory=dict)
    """Calls that are not made, by their index, each with the reason for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Final(_Common):
    """End the run with an answer. `args`: those of `final_response`, as the model gave them."""

    args: dict[str, Any]
    node: str = FINAL_RESPONSE
    has_text: bool = True
    """False: the answer text is missing. One further model call asks for the text alone."""
    judged: bool = False
    """A critique judged it before, and no better answer followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDecision(_Common):
    """A decision of a kind that one strategy alone knows, as a subclass. The strategy says what follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid(_Common):
    """The reply is no valid action. The model is called again and receives `complaint`, the reason."""

    complaint: str
    reply: str
    node: str = "invalid"
    """The action that the reply names, if it names one."""
    salvage: "Decision | None" = None
    """The decision to use when no further model call is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(_Common):
    """The model gave no reply, or a part of one."""

    fault: Fault
    elsewhere: bool = False
    """Another model may answer the same request."""
    refusal: str = ""
    """What the model says in its refusal to answer."""
    shown: str = ""
    """What listeners have of the answer in a reply that broke off."""
    retry_after_s: float | None = None
    """The pause that the provider asks for."""
    salvage: Final | None = None
    """The answer where no other attempt follows: a part of the one that was cut."""
    chance: float = 0.0
    """Random, 0 to 1, drawn when the request failed: it spreads the pauses of runs that failed together."""


def form_of(shape: ReplyShape, warnings: Sequence[str]) -> ReplyForm:
    """Return a form, with the rule `adjusted` where warnings say what was changed or left out."""
    return ReplyForm(form=shape, rules=["adjusted"] * bool(warnings))


Decision = Calls | OwnDecision | Final | Invalid | Failed


@dataclass(frozen=True, slots=True)
class Triage:
    """The result of a triage."""

    effort: Effort
    model: str | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class Critique:
    """The result of a critique. `score`: 0..1, or None when the reply was unusable."""

    score: float | None
    feedback: str
    usage: Usage
