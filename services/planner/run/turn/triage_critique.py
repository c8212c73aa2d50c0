"""The results of two short model calls beside the run's own.

A triage chooses effort and model; a critique scores an answer.
"""

from dataclasses import dataclass

from contracts.runs.payload import Usage
from contracts.runs.requests import Effort


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
