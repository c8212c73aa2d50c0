"""What a check found, of `runwire doctor` or `runwire tools check`, and how it is printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.markup import escape

from runwire.cli.common import one_line, print_json, print_line

_MARKS = {"ok": "[green]✓[/green]", "warning": "[yellow]![/yellow]", "failed": "[red]✗[/red]"}


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    status: Literal["ok", "warning", "failed"]
    finding: str
    mend: str = ""


def print_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    """Print findings for people, a line each and how to mend it, or as one JSON list."""
    if as_json:
        print_json([check.__dict__ for check in checks])
        return
    console = Console()
    for check in checks:
        print_line(console, f"{_MARKS[check.status]} {escape(one_line(f'{check.name}: {check.finding}'))}")
        if check.mend:
            print_line(console, f"  [dim]{escape(one_line(check.mend))}[/dim]")
