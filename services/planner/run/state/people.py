"""What people have added to a run, and decided about its pauses, as its log holds it. Pure.

Each input is in exactly one place: unread until the next request to the model, then in the history, once and in order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from contracts.artifacts import ImageRef
from contracts.runs.events import InputAdded, Paused, PlannedCall, Resumed, RunStarted
from contracts.runs.pauses import CallApproval, OpenPause, PauseAnswer, token_of
from contracts.sessions.tasks import SessionTaskControl
from services.shared.tools.approvals import pause_digest


@dataclass(slots=True)
class AddedInputs:
    """The inputs of a run, in their order."""

    ids: set[str] = field(default_factory=set)
    unread: list[InputAdded] = field(default_factory=list)
    """The model has not received them."""
    read: list[InputAdded] = field(default_factory=list)

    def add(self, added: InputAdded) -> None:
        """Take an input that was recorded."""
        self.ids.add(added.id)
        self.unread.append(added)

    def take_unread(self, held: Callable[[InputAdded], bool]) -> list[InputAdded]:
        """Return the unread inputs up to the first that a person has to admit. They are read from now on."""
        count = next((place for place, added in enumerate(self.unread) if held(added)), len(self.unread))
        taken, self.unread = self.unread[:count], self.unread[count:]
        self.read += taken
        return taken

    @property
    def images(self) -> list[ImageRef]:
        """The images that the model was shown with inputs."""
        return [image for added in self.read for image in added.images]

    def question(self, query: str) -> str:
        """Return what the model was asked: the question of the run, or what replaced it, with what was added."""
        texts = [query]
        for added in self.read:
            texts = [added.text] if added.redirect else [*texts, added.text]
        return "\n\n".join(text for text in texts if text)


MAX_SHOWN_CHARACTERS = 8_000
"""Characters of a text or answer that a pause repeats."""
ApprovedRule = tuple[str, str]
"""Names of an approval rule and of a tool."""


@dataclass(slots=True)
class PauseDecisions:
    """The decisions so far, and what the next message of each call carries because of them."""

    requests: dict[str, str] = field(default_factory=dict)
    """Request that took effect -> SHA-256 of its body."""
    closed: set[str] = field(default_factory=set)
    of_tasks: set[str] = field(default_factory=set)
    """Ids of pauses about results of tasks, which are over as well when somebody applies these elsewhere."""
    approved: dict[str, CallApproval] = field(default_factory=dict)
    """By call id."""
    answers: dict[str, list[PauseAnswer]] = field(default_factory=dict)
    """By call id: the answers to the pauses of its tool, in their order."""
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By call id: what its tool keeps for the next round."""
    consents: dict[str, Resumed] = field(default_factory=dict)
    """By call id: the decision that approved it."""
    removed_images: set[str] = field(default_factory=set)
    """Ids of the images that the model is no longer shown."""
    results: list[SessionTaskControl] = field(default_factory=list)
    """Decisions about results of tasks that a call waits for. The session carries them out."""
    approved_rules: set[ApprovedRule] = field(default_factory=set)
    approved_before: frozenset[ApprovedRule] = frozenset()
    """Rules that ask once per session and were approved before the run began. They are facts of the session's log."""

    def take_pause(self, paused: Paused) -> None:
        """Apply a pause that was opened or replaced."""
        if paused.id is not None:
            self.requests[paused.id] = paused.request_sha256
        if paused.call_id is not None and not asks_consent(paused):
            self.states[paused.call_id] = paused.state

    def take_results(self, held: OpenPause, resumed: Resumed) -> None:
        """Apply a decision about results of tasks."""
        self.closed.add(held.pause_id)
        self.requests[resumed.id or ""] = resumed.request_sha256
        action = "apply" if resumed.decision == "approve" else "reject"
        fields = {"id": resumed.id or held.pause_id, "action": action, "by": resumed.by, **(held.arguments or {})}
        self.results.append(SessionTaskControl.model_validate(fields))

    def take_decision(self, paused: Paused, resumed: Resumed) -> None:
        """Apply the decision that closed a pause."""
        self.closed.add(paused.pause_id or "")
        self.removed_images.update(resumed.images_remove)
        if resumed.id is not None:
            self.requests[resumed.id] = resumed.request_sha256
        if paused.call_id is None or resumed.decision is None:
            return
        if paused.source == "task":
            if not is_refused(paused, resumed):
                self.consents[paused.call_id] = resumed
        elif not asks_consent(paused):
            answer = PauseAnswer(
                number=paused.number, decision=resumed.decision, input=resumed.input, note=resumed.note
            )
            self.answers.setdefault(paused.call_id, []).append(answer)
        elif resumed.decision in {"approve", "edit"}:
            self.approved[paused.call_id] = CallApproval(
                digest=resumed.digest, pause_id=paused.pause_id, revision=paused.revision
            )
            self.consents[paused.call_id] = resumed
            if paused.rule is not None and resumed.decision == "approve":
                self.approved_rules.add((paused.rule, paused.tool or ""))


def asks_consent(paused: Paused) -> bool:
    """Whether a pause asks for the approval of a call that was not sent yet. Pauses of tools do not."""
    return paused.spec is not None


def is_refused(paused: Paused, resumed: Resumed) -> bool:
    """Whether a decision ends the call that waits. A tool receives a rejection and ends its call itself."""
    if paused.source == "task" and resumed.decision == "answer":
        return not resumed.input["approve"]
    return resumed.decision == "reject" and (asks_consent(paused) or paused.source == "task")


def with_answer_token(started: RunStarted, paused: Paused) -> Paused:
    """Return a pause that waits for an answer, with its digest and its token."""
    name = paused.pause_id or ""
    digest = pause_digest(started.tenant, started.run_id, name, paused.input_schema, paused.revision)
    return paused.model_copy(update={"digest": digest, "token": token_of(name, paused.revision, digest)})


def called_again(call: PlannedCall, paused: Paused, resumed: Resumed) -> PlannedCall:
    """Return a call as it goes on after its pause: with other arguments, or in the next round."""
    if paused.source == "task":
        given = resumed.input if isinstance(resumed.input, dict) else {}
        return call.model_copy(update={"args": call.args | {key: given[key] for key in given if key == "retain_turn"}})
    if not asks_consent(paused):
        return call.model_copy(update={"round": paused.round + 1, "direct": None})
    return call if resumed.arguments is None else call.model_copy(update={"args": resumed.arguments})
