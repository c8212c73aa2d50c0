"""What a check has found, in bounds: the rest is counted."""

from collections.abc import Callable, Iterable

from contracts.runs.plans import PlanError, PlanErrorDetail, PlanWarning, PlanWarningCode

MAX_ERRORS = 100
MAX_ERROR_BYTES = 64 << 10
"""Bytes of all errors together as JSON; the first one may be larger."""
MAX_WARNINGS = 100
MAX_TEXT_CHARACTERS = 500
MAX_NAME_CHARACTERS = 200
"""In the record of an error. A line about it shows fewer (`texts`)."""


class Findings:
    """The errors and warnings of one plan."""

    def __init__(self) -> None:
        self.errors: list[PlanError] = []
        self.warnings: list[PlanWarning] = []
        self.left_out = 0
        self._room = MAX_ERROR_BYTES

    def add(
        self, tool_index: int | None, detail: PlanErrorDetail, argument: Callable[[], str] = str, template: str = ""
    ) -> None:
        """Add an error, or count it. `argument` returns its path, and is called only for an error that is kept."""
        if self._room <= 0 or len(self.errors) == MAX_ERRORS:
            self.left_out += 1
            return
        error = PlanError(
            tool_index=tool_index, argument=shortened(argument()), template=shortened(template), error=detail
        )
        self._room -= len(error.model_dump_json().encode())
        self.errors.append(error)

    def warn(self, tool_index: int, warning: PlanWarningCode, argument: Callable[[], str]) -> None:
        """Add a warning; those after the hundredth are left out."""
        if len(self.warnings) < MAX_WARNINGS:
            text = shortened(argument())
            self.warnings.append(PlanWarning(tool_index=tool_index, argument=text, warning=warning))


def shortened(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return text that UTF-8 can encode, of at most `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def names_of(names: Iterable[str]) -> list[str]:
    """Return names, each shortened."""
    return [shortened(name, MAX_NAME_CHARACTERS) for name in names]
