"""Rules on the texts of users: which questions and inputs of an agent's runs are refused, or wait for a person.

Only texts are searched, never images. The rules are compiled when the agents file is read.

A search ends after `SEARCH_TIMEOUT_S`, and runs in a thread that does not hold the interpreter's lock (`regex` can do
both, `re` neither), so no expression stops a planner. A text that could not be searched in time counts as a match.

Pure, but for the time that a search may take.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import regex  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from contracts.runs.requests import RunRequested
from contracts.wire.faults import Fault
from services.shared.redaction.json_values import strings_in

SEARCH_TIMEOUT_S = 0.5
"""Of all rules over one message."""
MAX_EXPRESSION_CHARACTERS = 2_000


class InputRule(BaseModel):
    """A rule of the agents file. Of several rules that match, the first one counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    text: str = Field(
        min_length=1, max_length=MAX_EXPRESSION_CHARACTERS, description="a regular expression that is searched for"
    )
    action: Literal["refuse", "pause"] = Field(description="`pause`: a person decides whether the run goes on")
    title: str = Field(default="", max_length=200, description="shown to the person who decides")
    _expression: Any = PrivateAttr()

    def model_post_init(self, _: Any) -> None:
        """Compile the expression. Raises ValueError, which names the fault and its position."""
        try:
            self._expression = regex.compile(self.text)
        except regex.error as error:
            raise ValueError(f"`text` is no regular expression: {error}") from None

    def finds(self, text: str, within_s: float) -> bool:
        """Whether the text holds a match. Raises TimeoutError."""
        return self._expression.search(text, timeout=within_s, concurrent=True) is not None


def input_refused(rule: str, note: str = "") -> Fault:
    """Return the fault of a text that a rule, or the person whom the rule asks, does not admit."""
    said = f": {note}" if note else ""
    return Fault(code="input_refused", reason=f"the rule {rule} does not admit this text{said}")


@dataclass(frozen=True, slots=True)
class Checked:
    """What the rules say of a message: it is refused, or waits for a person, since `rule` matches `text`."""

    refusal: Fault | None = None
    rule: InputRule | None = None
    text: str = ""


ADMITTED = Checked()


def texts_of(request: RunRequested) -> list[str]:
    """Return what a request tells the model: the question, the messages of users, and all texts of `llm_context`."""
    said = "\n".join(each.content for each in request.messages if each.role == "user")
    return [text for text in (request.query, said, "\n".join(strings_in(request.llm_context))) if text]


def check(rules: Sequence[InputRule], texts: Sequence[str]) -> Checked:
    """Return what the rules say of these texts, within `SEARCH_TIMEOUT_S`."""
    each_s = SEARCH_TIMEOUT_S / max(1, len(rules) * len(texts))
    for rule in rules:
        for text in texts:
            # What a reader sees of it: without invisible characters, and in its usual ones.
            usual = unicodedata.normalize("NFKC", text)
            seen = "".join(each for each in usual if unicodedata.category(each) != "Cf")
            try:
                matches = any(rule.finds(form, each_s / 2) for form in {text, seen})
            except TimeoutError:
                matches = True
            if matches and rule.action == "refuse":
                return Checked(input_refused(rule.name))
            if matches:
                return Checked(rule=rule, text=text)
    return ADMITTED
