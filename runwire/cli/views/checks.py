"""What a check found, of `runwire doctor` or `runwire tools check`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from runwire.cli.exit_codes import EXIT_FAILED
from runwire.cli.frame import Found
from runwire.cli.printing import OUT, marked, one_line

_MARKS = {"ok": "[green]✓[/green]", "warning": "[yellow]![/yellow]", "failed": "[red]✗[/red]"}


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    status: Literal["ok", "warning", "failed"]
    finding: str
    mend: str = ""


def checklist(checks: Sequence[Check]) -> Found:
    """Findings, for people a line each and how to mend it. The exit code says whether any check has failed."""

    def show() -> None:
        for check in checks:
            OUT.print(f"{_MARKS[check.status]} {marked(one_line(f'{check.name}: {check.finding}'))}")
            if check.mend:
                OUT.print(f"  [dim]{marked(one_line(check.mend))}[/dim]")

    has_failed = any(check.status == "failed" for check in checks)
    return Found([asdict(check) for check in checks], show, EXIT_FAILED if has_failed else 0)
