"""The lines of a checklist, and the table that they come from. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

from contracts.tools.checks import Finding

MAX_CHARACTERS = 500
"""Of what a line says; texts of tools are cut."""
NAMES = ("artifact_id", "artifact", "_metadata")
"""The members of a canonical result."""
METADATA = ("context_id", "request_id", "trace_id", "user_id", "tool_name", "executed_at")
"""The members of `_metadata` that a canonical result has."""
RESPOND = "return a ToolResponse, or an object with artifact_id, artifact and _metadata"

Check = tuple[str, Literal["ok", "warning", "failed"], object, str, str]
"""A row: what it is about, its status, whether it applies, what it says, and the remedy."""


def lines_of(checks: Iterable[Check]) -> list[Finding]:
    """Return a line for each name: that of its first row which applies; none where no row does."""
    found: dict[str, Finding] = {}
    for name, status, applies, finding, mend in checks:
        if applies and name not in found:
            text = " ".join(finding.split())
            text = text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
            found[name] = Finding(name=name, status=status, finding=text, mend=mend)
    return list(found.values())


def listed(names: Sequence[str], most: int = 8) -> str:
    """Name some things, and say how many there are where they are many."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
