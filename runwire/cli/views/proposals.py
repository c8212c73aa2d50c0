"""A proposal in the terminal: each operation on a line, with its number, what it changes, and why it was refused."""

from collections.abc import Iterator
from typing import Any

from runwire.cli.printing import OUT, json_text, marked
from runwire.client import ProposalView

_SIGNS = {"add": "+", "update": "~", "modify": "~", "delete": "-", "remove": "-", "reorder": ">"}
_COLOURS = {"+": "green", "~": "yellow", "-": "red", ">": "blue"}


def print_proposal(proposal: ProposalView) -> None:
    """Print a proposal as it is now."""
    OUT.print(f"[bold]{marked(proposal.summary)}[/bold] [dim]{proposal.state} · {proposal.proposal_id}[/dim]")
    verdicts = {each["index"]: each for each in proposal.verdicts}
    for number, text in enumerate(_lines(proposal)):
        verdict = verdicts.get(number, {})
        status = verdict.get("status")
        colour = _COLOURS.get(text[0], "default")
        mark = "x" if status == "failed" else "✓" if status == "applied" else " "
        reason = f"  [red]{marked(verdict.get('code', ''))}: {marked(verdict.get('reason') or '')}[/red]"
        OUT.print(f"{mark}{number:>4} [{colour}]{text}[/{colour}]{reason if 'code' in verdict else ''}")
    for row in proposal.view.get("samples", {}).get("rows", ()):
        OUT.print(f"      [dim]sample {json_text(row)}[/dim]")
    if (report := proposal.report) is not None:
        OUT.print(f"[bold]{report.applied} applied, {report.failed} failed[/bold]")
        for refused in report.refused if not verdicts else ():
            OUT.print(f"      [red]{marked(refused.code)}: {marked(refused.reason)}[/red]")
    elif proposal.code is not None:
        OUT.print(f"[red]the last apply has failed: {marked(proposal.code)}[/red]")


def _lines(proposal: ProposalView) -> Iterator[str]:
    """Yield a line of markup for each operation."""
    names = proposal.view.get("names", {})
    was = {
        (row["key"], cell["column_id"]): cell["tooltip"]
        for row in proposal.view.get("rows", ())
        for cell in row["changed_cells"]
    }

    def named(column: Any) -> str:
        return marked(str(names.get(str(column), column)))

    def cells(values: Any, row: str = "") -> str:
        texts = []
        if not isinstance(values, dict):  # A model may have written anything.
            return json_text(values)
        for column, value in values.items():
            before = f" ({marked(was[row, column])})" if (row, column) in was else ""
            texts.append(f"{named(column)}: {json_text(value)}{before}")
        return ", ".join(texts)

    for given in proposal.data.get("operations") or ():
        operation = given if isinstance(given, dict) else {}
        action = str(operation.get("action", ""))
        sign, place = _SIGNS.get(action, "?"), operation.get("row_id", operation.get("column_id"))
        name = marked(f"row {place}") if "row_id" in operation else named(place)
        match action:
            case "add" if isinstance(operation.get("column"), dict):
                column = operation["column"]
                more = {key: value for key, value in column.items() if key not in {"name", "type"}}
                text = f"{marked(str(column.get('name')))} {marked(str(column.get('type')))} {cells(more)}".rstrip()
            case "add":
                text = cells(operation.get("data") or {})
            case "update" | "modify":
                text = f"{name}  {cells(operation.get('changes') or {}, f'row:{place}')}"
            case "reorder":
                after = operation.get("after_column_id")
                text = f"{name}  {'first' if after is None else f'after {named(after)}'}"
            case _:
                text = name
        yield f"{sign} {text}"
