"""Open pauses for people: how one is shown, how the command line names it, and what an answer's text means.

A pause is named `RUN/PAUSE`: the first digits of its id, and behind a dot its revision if that is not the first. So a
name that was read earlier never stands for a call that has changed since.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from runwire.cli.common import one_line, visible
from runwire.errors import NotFound, PauseChanged

if TYPE_CHECKING:
    from runwire.client import OpenPause

_SHOWN_DIGITS = 8


def name_of(pause_id: str, revision: int) -> str:
    """The part of a pause's name behind the run."""
    return pause_id[:_SHOWN_DIGITS] + (f".{revision}" if revision > 1 else "")


def named(pauses: "Iterable[OpenPause]", name: str) -> "OpenPause":
    """The pause of that name; an empty one stands for the only pause. Raises NotFound and PauseChanged."""
    start, _, rest = name.partition(".")
    found = [pause for pause in pauses if pause.pause_id.startswith(start)]
    if len(found) != 1:
        which = f"{len(found)} open pauses" if found else "no open pause"
        raise NotFound("not_found", f"the run has {which} {f'named {name}' if name else 'to choose from'}")
    (pause,) = found
    if name and (rest.partition(".")[0] or "1") != str(pause.revision):
        raise PauseChanged("pause_changed", "something else waits now: `runwire approvals` shows it under its new name")
    return pause


def _planned_calls(payload: Any) -> list[dict[str, Any]] | None:
    """Return the calls of the plan whose call waits; None: the call is of no plan."""
    if not isinstance(payload, dict) or payload.keys() != {"plan", "call"} or not isinstance(payload["plan"], dict):
        return None
    calls = payload["plan"].get("calls")
    is_plan = isinstance(calls, list) and all(isinstance(each, dict) and "tool_name" in each for each in calls)
    return calls if is_plan else None


def _payload_lines(payload: Any) -> list[str]:
    """Return what the payload of a pause shows, as markup: of a call of a plan, the plan with this call marked."""
    calls = _planned_calls(payload)
    if calls is None:
        return [f"[dim]shown to you:[/dim] {_json(payload)}"]
    lines = ["[dim]a call of this plan:[/dim]"]
    for number, call in enumerate(calls):
        mark = "→" if number == payload["call"] else " "
        arguments = f" {_json(call['arguments'])}" if "arguments" in call else ""
        lines.append(f"{mark} {number} {escape(one_line(str(call['tool_name'])))}{arguments}")
    return lines


def print_pause(pause: "OpenPause", console: Console) -> None:
    """Print all that a person needs for a decision. Nothing is cut: it is what will be executed."""

    def line(markup: str) -> None:
        console.print(markup, soft_wrap=True, highlight=False)

    what = escape(visible(pause.tool or pause.source))
    until = datetime.fromtimestamp(pause.expires_at / 1000, UTC).astimezone()
    line(f"[bold yellow]{pause.reason}[/bold yellow] · [bold]{what}[/bold] · until {until:%Y-%m-%d %H:%M}")
    if pause.title:
        line(f"  {escape(one_line(pause.title))}")
    for name, value in (pause.arguments or {}).items():
        line(f"  {escape(one_line(name))} = {_json(value)}")
    if pause.payload is not None:
        for shown in _payload_lines(pause.payload):
            line(f"  {shown}")
    if pause.rule:
        line(f"  [dim]asked for by the rule {escape(one_line(pause.rule))}[/dim]")
    if len(pause.plan) > 1:
        line(f"  [dim]one of {len(pause.plan)} calls of its plan[/dim]")
    if pause.input_schema is not None:
        line(f"  [dim]answer:[/dim] {_json(pause.input_schema)}")
    if pause.default == "answer":
        line(f"  [dim]if nobody answers:[/dim] {_json(pause.default_answer)}")


def answer_of(pause: "OpenPause", text: str) -> Any:
    """The value that a text stands for: itself where text is wanted, else JSON. Raises ValueError for what is neither.

    A schema that wants an object with one required text takes the text as that.
    """
    schema = pause.input_schema or {"type": "string"}
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    if schema.get("type") == "string" or text in schema.get("enum", ()):
        return text
    if text[:1] != "{" and len(required) == 1 and (properties.get(required[0]) or {}).get("type") == "string":
        return {required[0]: text}
    return json.loads(text)


def _json(value: Any) -> str:
    return escape(visible(json.dumps(value, ensure_ascii=False)))
