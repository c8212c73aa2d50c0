"""A conversation in the terminal: questions, streamed answers, and decisions where they are asked for.

Rule 1: reading from the terminal and following a run take turns in one thread, so Ctrl-C always meets exactly one of
them: `input` raises KeyboardInterrupt, and so does `Runner.run`, after it has cancelled what it waited for.
Rule 2: a run is followed from where its events were last shown, so leaving it for a decision loses and repeats nothing.
"""

import asyncio
import json
import sys
from collections.abc import Coroutine
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any, TypeVar

from contracts.runs.payload import NO_ANSWER
from runwire import events
from runwire.cli.pauses import answer_of, form_of, print_pause, print_proposal
from runwire.cli.printing import OUT, Exit, marked, print_error, program
from runwire.cli.screen import PAGE, GrowingAnswer, Screen, rendered
from runwire.client import Client, OpenPause, RunStatus, SessionStatus
from runwire.client.options import image_inputs
from runwire.errors import NotFound, PauseChanged, PauseClosed, RunAlreadyEnded, RunwireError, Unreachable

if sys.platform != "win32":
    import readline

    readline.set_auto_history(True)  # `input` edits lines with it

T = TypeVar("T")
_SHOWN_TURNS = 10
_MENDABLE = frozenset({403, 422})
"""Statuses of a refused decision after which the pause stays open."""
_HELP = (
    "/image FILE shows it with the next question, /agent NAME asks another agent, /help says this. While a run works, "
    "Ctrl-C adds to it, redirects or cancels it; Ctrl-D leaves. A question that begins with / begins with a blank."
)
_INTERRUPTED = "The run goes on. Type what to add to it, /redirect TEXT, or /cancel. Enter follows it, Ctrl-C leaves."


class Conversation:
    """One session in the terminal. `options` are those of each question."""

    def __init__(self, client: Client, session_id: str, options: dict[str, Any]) -> None:
        self._client = client
        self._session_id = session_id
        self._options = options
        self._runner = asyncio.Runner()
        self._cursors: dict[str, str] = {}
        """Run -> the record up to which its events were shown."""
        self._warned: set[str] = set()
        self._images: list[Path] = []
        """Of the next question."""
        self._proposals: dict[str, str] = {}
        """Run -> what it proposed last."""
        self._reports: set[str] = set()
        """Runs that reported on background tasks, and were shown."""

    def hold(self, *, is_new: bool) -> int:
        """Hold it until the end of the input, or Ctrl-C at the prompt; return the exit code. Raises RunwireError."""
        with self._runner:
            try:
                self._note(f"session {self._session_id}; Ctrl-C steers or cancels a run, Ctrl-D leaves")
                session = None if is_new else self._session()
                if session is not None and session.summary:
                    self._note(f"summary of earlier turns: {session.summary}")
                if session is not None:
                    self._show_turns([run for run in session.recent_runs if run.ended_at is not None][:_SHOWN_TURNS])
                if session is not None and session.current_run:
                    self._follow(session.current_run)
                while (text := self._read("you> ")) is not None:
                    if text.startswith("/"):
                        self._obey(*text.strip().split(maxsplit=1))
                    elif text.strip():
                        images, self._images = self._images, []
                        start = self._client.start(text, session_id=self._session_id, images=images, **self._options)
                        if (run_id := self._attempt(start)) is not None:
                            self._follow(run_id)
                            OUT.print()
                    # What has come of background tasks meanwhile.
                    session = self._session()
                    runs = [run for run in session.recent_runs if run.cause == "report"] if session else []
                    self._show_turns([run for run in runs if run.ended_at and run.run_id not in self._reports])
            except KeyboardInterrupt:
                return Exit.INTERRUPTED
            finally:
                self._runner.run(self._client.aclose())
                OUT.print()
                self._note(f"{program()} chat --session {self._session_id} goes on with it")
        return 0

    def _obey(self, command: str, argument: str = "") -> None:
        """Carry out a command of the prompt."""
        if command == "/agent" and argument:
            self._options["agent"] = argument
            self._note(f"{argument} is asked from now on")
        elif command == "/image" and argument:
            try:
                image_inputs([path := Path(argument).expanduser()])
            except (OSError, ValueError) as error:
                print_error(str(error))
            else:
                self._images.append(path)
                self._note(f"the next question shows {path.name}")
        else:
            self._note(_HELP)

    def _attempt(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await a request; None: the gateway has refused it, which is printed. Raises Unreachable."""
        try:
            return self._runner.run(work)
        except Unreachable:
            raise
        except RunwireError as error:
            print_error(str(error))
            return None

    def _read(self, prompt: str) -> str | None:
        """A line of the person's; None: there are no more."""
        try:
            return input(prompt)
        except EOFError:
            return None

    def _note(self, text: str) -> None:
        OUT.print(f"[dim]{marked(text)}[/dim]")

    def _session(self) -> SessionStatus | None:
        """The session; None: it has not begun."""
        try:
            return self._runner.run(self._client.session(self._session_id))
        except NotFound:
            return None

    def _show_turns(self, newest_first: list[RunStatus]) -> None:
        async def with_payload(run: RunStatus) -> RunStatus:
            try:
                return await self._client.status(run.run_id, artifacts="refs")
            except NotFound:  # It was deleted meanwhile.
                return run

        async def with_payloads() -> list[RunStatus]:
            return await asyncio.gather(*map(with_payload, reversed(newest_first)))

        for run in self._runner.run(with_payloads()):
            is_report = run.cause == "report"
            if is_report:
                self._reports.add(run.run_id)
            OUT.print(f"[dim]{'report' if is_report else f'you> {marked(run.query)}'}[/dim]")
            answer, is_done = run.payload.raw_answer if run.payload else "", run.status == "done"
            if answer and (is_done or answer != NO_ANSWER):
                if OUT.is_terminal:
                    PAGE.print(rendered(answer))
                else:
                    OUT.print(f"[bold]{marked(answer)}[/bold]")
            if not is_done:
                reason = next(iter(run.payload.warnings), "") if run.payload and run.code else ""
                OUT.print(f"[red]{marked(': '.join(filter(None, [run.status, run.code, reason])))}[/red]")

    def _follow(self, run_id: str) -> None:
        """Show a run to its end, and have people decide what it waits for."""
        while True:
            try:
                end = self._runner.run(self._show(run_id))
                if isinstance(end, events.Done) and end.route == "merged":
                    run_id = end.extra["run_id"]
                    self._note("added to the run that is under way")
                elif end is not None:
                    self._propose(run_id)
                    return
                elif not self._decide(run_id):
                    return
            except KeyboardInterrupt:
                OUT.print()
                self._interrupted(run_id)

    async def _show(self, run_id: str) -> events.RunEvent | None:
        """Show a run to its last event, which is returned, or until a person is asked: None."""
        answer = GrowingAnswer() if OUT.is_terminal else None
        screen = Screen(warned=self._warned, answer=answer)
        stream = self._client.follow(run_id, self._cursors.get(run_id), on_comment=screen.show_comment)
        event: events.RunEvent | None = None
        is_asked = False
        with closing(screen):
            async with aclosing(aiter(stream)) as following:
                async for event in following:
                    screen.show(event.model_dump(mode="json"))
                    is_asked |= isinstance(event, events.Paused) and event.pause_id is not None
                    if isinstance(event, events.PayloadProposed) and event.kind.endswith("_proposal"):
                        self._proposals[run_id] = event.payload_id
                    if self._cursors.get(run_id, "") == stream.cursor:
                        continue
                    self._cursors[run_id] = stream.cursor  # The whole record has been shown.
                    if is_asked and await self._client.pauses(run_id):
                        return None
                    is_asked = False
        return event

    def _decide(self, run_id: str) -> bool:
        """Ask about each open pause; return whether anything was decided."""
        is_any_decided = False
        for pause in self._runner.run(self._client.pauses(run_id)):
            print_pause(pause)
            try:
                is_any_decided |= self._decided(pause)
            except (PauseClosed, PauseChanged, RunAlreadyEnded) as error:
                print_error(error.detail)
                is_any_decided = True
        return is_any_decided

    def _decided(self, pause: OpenPause) -> bool:
        """Read what a person decides until it is possible, and send it. False: it is left for later."""
        is_question = pause.reason == "input"
        prompt = "[a]pprove, [r]eject, [e]dit or [l]ater> "
        if is_question:
            fields = form_of(pause.input_schema or {})
            prompt = f"{fields[0].name if len(fields) > 1 else 'answer'}, /reject or /later> "
        elif pause.source == "task":  # The run may wait for the task.
            prompt = f"[a]pprove, {'approve and [w]ait, ' if pause.input_schema else ''}[r]eject or [l]ater> "
        while (text := self._read(prompt)) is not None:
            command = text.strip()
            if is_question:
                command = command[1:] if command.startswith("/") else command and "answer"
            if command in {"l", "later"}:
                break
            try:
                if self._sent(pause, command, text.strip()):
                    return True
            except ValueError as error:
                print_error(f"that is no JSON: {error}")
            except RunwireError as error:
                if error.status not in _MENDABLE:
                    raise
                print_error(str(error))
        self._note(f"it stays open: {program()} approvals --run {pause.run_id}")
        return False

    def _sent(self, pause: OpenPause, command: str, text: str) -> bool:
        """Send a decision; False: the command is none. Raises ValueError for what is no JSON, and RunwireError."""
        match command:
            case "a" | "approve":
                sending = self._client.approve(pause)
            case "r" | "reject":
                sending = self._client.reject(pause, note=self._read("why, for the model> ") or "")
            case "w" | "wait" if pause.source == "task":
                sending = self._client.answer(pause, {"approve": True, "retain_turn": True})
            case "e" | "edit":
                sending = self._client.edit(pause, json.loads(self._read("all arguments, as JSON> ") or ""))
            case "answer":
                sending = self._client.answer(pause, self._filled_in(pause, text))
            case _:
                return False
        self._runner.run(sending)
        return True

    def _filled_in(self, pause: OpenPause, text: str) -> Any:
        """The answer that a text begins: of a form with several fields it is the first, and the others are asked for.

        Raises ValueError.
        """
        fields = form_of(pause.input_schema or {})
        if len(fields) <= 1 or text.startswith("{"):
            return answer_of(pause, text)
        found = {fields[0].name: fields[0].value(text)}
        for field in fields[1:]:
            if given := (self._read(f"{field.shown}> ") or "").strip():
                found[field.name] = field.value(given)
        return found

    def _propose(self, run_id: str) -> None:
        """Show what a run has proposed, and have it applied or dismissed, or left for the next message."""
        if (proposal_id := self._proposals.pop(run_id, None)) is None:
            return
        found = self._attempt(self._client.proposal(proposal_id))
        while found is not None and found.state == "pending":
            print_proposal(found)
            text = (self._read("apply [a]ll, with [s]amples, numbers as 0 2, [d]ismiss or [l]ater> ") or "l").strip()
            if text in {"l", "later"}:
                self._note(f"{program()} proposals apply {proposal_id}; the next message closes it")
                return
            chosen = [int(each) for each in text.replace(",", " ").split() if each.isascii() and each.isdigit()]
            if text in {"d", "dismiss"}:
                deciding = self._client.dismiss_proposal(proposal_id)
            elif chosen or text in {"a", "all", "s", "samples"}:
                samples = text in {"s", "samples"}
                deciding = self._client.apply_proposal(proposal_id, chosen or None, include_sample_rows=samples)
            else:
                continue
            if (decided := self._attempt(deciding)) is not None:
                found = decided
        if found is not None:
            print_proposal(found)

    def _interrupted(self, run_id: str) -> None:
        """Read what to do with the run that is under way. Raises KeyboardInterrupt at the second Ctrl-C."""
        self._note(_INTERRUPTED)
        text = (self._read("add> ") or "").strip()
        if text == "/cancel":
            self._attempt(self._client.cancel(run_id))
        elif text:
            redirect = text.startswith("/redirect ")
            self._attempt(self._client.send_input(run_id, text.removeprefix("/redirect "), redirect=redirect))
