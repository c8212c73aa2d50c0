"""What a storm over conversations leaves beside logs and ledger: what people did, and what they received."""

from dataclasses import dataclass, field

from tests.system.traces import Evidence


@dataclass
class Decision:
    """A decision about a pause, as its sender saw it. `key`: its Idempotency-Key; `status`: of the last answer."""

    run: str
    pause: str
    decision: str
    key: str
    status: int = 0
    code: str = ""


@dataclass
class Input:
    """A text that was added to a run."""

    run: str
    text: str
    status: int = 0
    at: float = 0.0
    """When the answer with this status came, Unix seconds."""


@dataclass
class Conversations(Evidence):
    """And what people did."""

    decisions: list[Decision] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
