"""Commands that start a run, follow it, stop it, delete it."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from runwire.cli.common import Format, Key, Output, Url, client_of, finish
from runwire.cli.exit_codes import EXIT_CANCELLED, EXIT_ERROR, EXIT_INCOMPLETE, print_error, program
from runwire.cli.rendering import Screen

if TYPE_CHECKING:
    from runwire import Client


class Strategy(StrEnum):
    """How a run decides what to do."""

    react = "react"
    planned = "planned"


class Vision(StrEnum):
    """What happens to images for a model that takes none."""

    strict = "strict"
    lenient = "lenient"


def _new_or_empty(folder: Path | None) -> Path | None:
    """Make the folder, before the run costs anything. Raises BadParameter."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise typer.BadParameter(f"{folder} is not empty, and nothing is overwritten")
    return folder


Save = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        callback=_new_or_empty,
        help="Save the answer, the payload and every artifact here; a folder that is new or empty.",
    ),
]


StrategyOption = Annotated[
    Strategy | None,
    typer.Option(
        "--strategy", help="react decides after each result; planned plans all calls first. Default: the agent's."
    ),
]
Images = Annotated[
    list[Path] | None,
    typer.Option(exists=True, dir_okay=False, help="A png, jpeg, webp or gif to show to the model; may be repeated."),
]


VisionOption = Annotated[
    Vision | None,
    typer.Option(
        "--vision",
        help="Images for a model that takes none: strict refuses the run, lenient drops them with a warning.",
    ),
]


def run(
    question: str,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
    session: Annotated[str | None, typer.Option(help="The session to continue. Default: a new one.")] = None,
    agent: Annotated[str | None, typer.Option(help="An entry of the agents file.")] = None,
    strategy: StrategyOption = None,
    model: Annotated[str | None, typer.Option(help="LiteLLM's name of a model.")] = None,
    tool: Annotated[
        list[str] | None, typer.Option(help="A tool that the run may use; may be repeated. Default: all.")
    ] = None,
    image: Images = None,
    vision: VisionOption = None,
    max_steps: Annotated[int | None, typer.Option(min=1)] = None,
    deadline_s: Annotated[float | None, typer.Option(min=0.001)] = None,
    save: Save = None,
) -> None:
    """Ask a question and show how it is answered."""
    from runwire.client.images import image_inputs  # noqa: PLC0415, see `client_of`

    try:
        images = image_inputs(image or ()) or None
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--image") from None
    limits = _given(max_steps=max_steps, deadline_s=deadline_s) or None
    options = _given(
        session_id=session,
        agent=agent,
        strategy=strategy,
        model=model,
        tools=tool,
        limits=limits,
        images=images,
        vision=vision,
    )
    finish(start_and_show(url, api_key, question, options, output, save))


def _given(**options: Any) -> dict[str, Any]:
    """The options that the user gave."""
    return {name: value for name, value in options.items() if value is not None}


async def start_and_show(
    url: str | None,
    api_key: str | None,
    question: str,
    options: dict[str, Any],
    output: Output,
    folder: Path | None = None,
) -> int:
    """Start a run, show it, save it in `folder` if there is one, and return the exit code."""
    async with client_of(url, api_key) as client:
        run_id = await client.start(question, **options)
        code = await show(client, run_id, output)
        if folder is not None:
            from runwire.cli.saving import save as save_run  # noqa: PLC0415, see `client_of`

            names = await save_run(client, run_id, folder)
            sys.stderr.write(f"saved in {folder}: {', '.join(names)}\n")
        return code


def tail(run_id: str, url: Url = None, api_key: Key = None, output: Format = Output.text) -> None:
    """Follow a run from its beginning, whether it is running or has ended."""

    async def work() -> int:
        async with client_of(url, api_key) as client:
            return await show(client, run_id, output)

    finish(work())


async def show(client: "Client", run_id: str, output: Output) -> int:
    """Show a run to its end and return the exit code."""
    from asyncio import CancelledError  # noqa: PLC0415, `up` starts its event loop in another process image

    try:
        end = await _show_events(client, run_id, output)
    except CancelledError:
        sys.stderr.write("\n")
        print_error(f"the run continues: `{program()} tail {run_id}` shows it, `{program()} cancel {run_id}` stops it")
        raise
    if output is Output.json:
        payload = end.get("payload") or {
            name: value for name, value in end.items() if name not in {"type", "reason", "usage"}
        }
        document = {
            "run_id": run_id,
            "status": end.get("type"),
            "reason": end.get("reason"),
            "code": end.get("code"),
            "payload": payload,
            "usage": end.get("usage"),
        }
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    return _exit_code(end)


async def _show_events(client: "Client", run_id: str, output: Output) -> dict[str, Any]:
    """Show a run's events and return the last."""
    screen = Screen(Console())
    end: dict[str, Any] = {}
    on_comment = screen.show_comment if output is Output.text else lambda _: None
    async for followed in client.follow(run_id, on_comment=on_comment):
        event = followed.model_dump(mode="json")
        if output is Output.jsonl:
            sys.stdout.write(json.dumps(event, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        elif output is Output.text:
            screen.show(event)
        end = event
    return end


def _exit_code(end: dict[str, Any]) -> int:
    if end.get("type") == "done":
        return 0 if end.get("reason") == "answer_complete" else EXIT_INCOMPLETE
    return EXIT_CANCELLED if end.get("type") == "cancelled" else EXIT_ERROR


def cancel(run_id: str, url: Url = None, api_key: Key = None, reason: str = "") -> None:
    """Stop a run."""

    async def work() -> int:
        async with client_of(url, api_key) as client:
            await client.cancel(run_id, reason)
        return 0

    finish(work())


def delete(run_id: str, url: Url = None, api_key: Key = None) -> None:
    """Delete a run with its events, artifacts and images; one that is still running is cancelled first."""

    async def work() -> int:
        async with client_of(url, api_key) as client:
            await client.delete(run_id)
        return 0

    finish(work())
