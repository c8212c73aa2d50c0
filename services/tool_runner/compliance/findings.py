"""The lines of a checklist. Pure."""

from contracts.tools.checks import Finding

MAX_CHARACTERS = 500
"""Of what a line says; texts of tools are cut."""
NAMES = ("artifact_id", "artifact", "_metadata")
"""The members of a result in the standard form."""
METADATA = ("context_id", "request_id", "trace_id", "user_id", "tool_name", "executed_at")
"""The members of `_metadata` that the standard form asks for."""
RESPOND = "return a ToolResponse, or an object with artifact_id, artifact and _metadata"


def ok(name: str, finding: str, mend: str = "") -> Finding:
    """What is as it should be."""
    return Finding(name=name, status="ok", finding=cut(finding), mend=mend)


def warning(name: str, finding: str, mend: str) -> Finding:
    """What works and could be better."""
    return Finding(name=name, status="warning", finding=cut(finding), mend=mend)


def failed(name: str, finding: str, mend: str) -> Finding:
    """What has to be mended."""
    return Finding(name=name, status="failed", finding=cut(finding), mend=mend)


def cut(text: str) -> str:
    """Return a text in one line, without its end where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_CHARACTERS else f"{line[: MAX_CHARACTERS - 1]}…"


def listed(names: list[str], most: int = 8) -> str:
    """Name some things, and say how many there are where they are many."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
