"""What is known of the models that leave the opening mark of their thoughts out."""

from collections.abc import Collection
from typing import NamedTuple

MAX_MODELS = 1000
FORGOTTEN_AFTER = 20
"""Replies in a row without a closing mark, after which a model no longer counts as one that leaves the other out."""


class ThinkingFirst:
    """The models that leave the opening mark out: those declared, and those whose replies did so in this process."""

    def __init__(self, declared: Collection[str] = ()) -> None:
        self._declared = frozenset(declared)
        self._since: dict[str, int] = {}
        """Model -> its replies since the last one that left the mark out."""

    def __contains__(self, model: str) -> bool:
        return model in self._declared or model in self._since

    def note(self, model: str, *, is_unopened: bool) -> None:
        """Note whether a reply left the mark out."""
        if is_unopened and (model in self._since or len(self._since) < MAX_MODELS):
            self._since[model] = 0
        elif model in self._since:
            self._since[model] += 1
            if self._since[model] >= FORGOTTEN_AFTER:
                del self._since[model]


class Habit(NamedTuple):
    """What is known of one model."""

    models: ThinkingFirst = ThinkingFirst()
    model: str = ""

    @property
    def is_expected(self) -> bool:
        """Whether its reply may begin with a thought without an opening mark."""
        return self.model in self.models

    def note(self, *, is_unopened: bool) -> None:
        """Note whether its reply did so."""
        if self.model:
            self.models.note(self.model, is_unopened=is_unopened)
