"""Renders the messages that all dialects share: the system message, past turns, the question, notes, data.

Rule 1: before the question, users' and assistants' messages alternate, and the last one is an assistant's.
Rule 2: the summary and the session's context are data. A past question cannot close its marker, and a past answer has
the form of a decision, so neither can pass for a message of the runtime.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from contracts.artifacts import ImageRef
from contracts.runs import events
from contracts.runs.decisions import FINAL_RESPONSE
from contracts.runs.events import ActionFormat, ActionTransport
from contracts.runs.requests import RunLimits, RunRequested
from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.conversation import texts
from services.planner.conversation.catalogue import render_catalogue, shown_name, task_specs
from services.planner.conversation.encoding import compact, with_images
from services.planner.run.state.history import Conversation, Executed
from services.shared.tools.builtin import READ_ARTIFACT, readable_in

Message = dict[str, Any]
CACHE_MARK = {"type": "ephemeral"}
"""Marks the end of the stable prefix. `models.wire` removes it for providers that do not support it."""


class Dialect(ABC):
    """The messages that look different in each action format and transport."""

    complaint: str
    """About a reply that was not accepted, with a place for the reason."""

    @abstractmethod
    def decision(self, step: events.Step) -> Message:
        """Render a decision of the model."""

    @abstractmethod
    def outcomes(
        self, step: events.Step, observed: Sequence[events.Observed], note: str | None = None
    ) -> list[Message]:
        """Render the outcomes of a decision's calls. `note`: a line of the runtime behind them."""

    def rejection(self, repaired: events.Repaired) -> list[Message]:
        """Render a reply that was not accepted, and the complaint about it."""
        reply = [says("assistant", repaired.reply)] if repaired.reply.strip() else []
        return [*reply, says("user", self.complaint.format(reason=repaired.reason))]

    def executed(self, item: Executed) -> list[Message]:
        """Render calls that a strategy made without the model, and what came of them; most strategies make none."""
        del item
        return []


def system_message(
    agent: Agent,
    tools: Sequence[ToolSpec],
    *,
    limits: RunLimits,
    action_format: ActionFormat = "auto",
    transport: ActionTransport = "json",
    tasks: bool = False,
) -> Message:
    """Render the parts that stay the same in a run: output format, actions, finishing, tools, guidance, limits.

    `tasks`: whether the model may start background work. With the transport `tools` the catalogue is not part
    of the message.
    """
    native = transport == "tools"
    sections = [
        texts.IDENTITY,
        texts.NATIVE if native else texts.output_format(action_format, tasks=tasks),
        "" if native else texts.actions(action_format, tasks=tasks),
        texts.FINISHING,
        texts.plans(limits.max_parallel),
        texts.TASKS if tasks else "",
        texts.DATA,
        "" if native else render_catalogue([*tools, *task_specs(tools)] if tasks else tools),
        guidance(agent),
        texts.limits(limits),
    ]
    return system("\n\n".join(filter(None, sections)))


def guidance(agent: Agent) -> str:
    """Return the section with the agent's own prompt and its skills; empty: it has neither."""
    text = "\n".join(filter(None, [agent.system_prompt.strip(), *(f"- {skill.strip()}" for skill in agent.skills)]))
    return f"# Guidance\n{text}" if text else ""


def system(*parts: str) -> Message:
    """Return a system message of these texts, each of them the end of a prefix for the provider's cache."""
    return {
        "role": "system",
        "content": [{"type": "text", "text": each, "cache_control": CACHE_MARK} for each in parts],
    }


def question_message(request: RunRequested, images: Sequence[ImageRef], said: Conversation) -> Message:
    """Render the user's question, its date, what belongs to it as data, and the images. `said`: what was said before.

    The lead of a conversation without turns stands before the question.
    """
    lines = [*([] if said.turns else lead_lines(said)), question_text(request.query, request.requested_at)]
    data = (
        (texts.SESSION_CONTEXT_LEAD, "session_context", said.context),
        (texts.BACKGROUND_LEAD, "background_results", said.results),
        (texts.CONTEXT_LEAD, "context", request.llm_context),
    )
    lines += [data_section(lead, marker, values) for lead, marker, values in data if values]
    return {"role": "user", "content": with_images("\n".join(lines), images)}


def minute_of(at: int) -> str:
    """Write a moment, in Unix ms, by UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def question_text(query: str, asked_at: int) -> str:
    """Render a question with its date. `asked_at`: Unix ms; 0: not known."""
    text = between("question", query)
    if asked_at:
        asked_on = datetime.fromtimestamp(asked_at / 1000, UTC).strftime("%Y-%m-%d, %A")
        text += f"\n<asked_on>{asked_on} (UTC)</asked_on>"
    return text


def past_messages(conversation: Conversation, decision: Callable[[events.Step], Message]) -> list[Message]:
    """Render the past turns, oldest first. `decision`: renders an answer as the run's dialect does."""
    messages: list[Message] = []
    for turn in conversation.turns:
        lead = [] if messages else lead_lines(conversation)
        lines = [*lead, question_text(turn.question, turn.asked_at)]
        if turn.images:
            came = "An image came" if turn.images == 1 else f"{turn.images} images came"
            lines.append(f"({came} with this question and cannot be seen any more.)")
        messages.append(says("user", "\n".join([*lines, *(between("input", text) for text in turn.inputs)])))
        answer = turn.answer.strip() or texts.NOT_ANSWERED
        messages.append(decision(events.Step(step=0, node=FINAL_RESPONSE, status="started", answer=answer)))
    return messages


def lead_lines(conversation: Conversation) -> list[str]:
    """Return what stands before the first past turn, or before the question if no turn is shown."""
    lines = [texts.CONVERSATION_LEAD] if conversation.turns else []
    if conversation.left_out:
        count = conversation.left_out
        lines.append("1 older turn is not shown." if count == 1 else f"{count} older turns are not shown.")
    if conversation.summary:
        lines.append(data_section(texts.SUMMARY_LEAD, "summary", conversation.summary))
    return lines


def input_message(added: events.InputAdded) -> Message:
    """Render what a person has added while the run went on, with its images."""
    lead = texts.INPUT_REPLACES if added.redirect else texts.INPUT_ADDS
    text = f"{lead}\n{between('question' if added.redirect else 'input', added.text)}" if added.text else lead
    return {"role": "user", "content": with_images(text, added.images)}


def between(marker: str, text: str) -> str:
    """Put a user's text between markers that it cannot close."""
    closed = re.sub(rf"</(?=\s*{marker})", "< /", text, flags=re.IGNORECASE)
    return f"<{marker}>\n{closed}\n</{marker}>"


def data_section(lead: str, marker: str, value: Any) -> str:
    """Put data between markers, behind a line that says what it is."""
    return f"{lead}\n<{marker}>\n{as_data(value)}\n</{marker}>"


def budget_notes(*, steps_left: int, tool_calls_left: int | None = None, legacy: bool = False) -> list[Message]:
    """Render the note that a budget is nearly exhausted; nothing while it is not. `legacy`: the action format."""
    if steps_left == 1 or tool_calls_left == 0:
        because = "this is your last decision" if steps_left == 1 else "no tool call is left"
        return [says("user", (texts.LEGACY_LAST if legacy else texts.LAST).format(because=because))]
    if steps_left == 2:  # noqa: PLR2004, one for a tool and one for the answer
        return [says("user", texts.NEARLY_LAST)]
    return []


def as_data(value: Any) -> str:
    r"""Compact JSON on one line in which no marker can be closed: `</` is written `<\/`, which JSON reads the same."""
    return compact(value).replace("</", "<\\/")


def says(role: Literal["system", "user", "assistant"], text: str) -> Message:
    """Return a message of plain text."""
    return {"role": role, "content": text}


def plan_of(step: events.Step) -> dict[str, Any]:
    """Return the calls of a decision, and their join, as the arguments of `plan`."""
    plan: dict[str, Any] = {"steps": [{"node": shown_name(call.tool), "args": call.args} for call in step.calls]}
    if step.join is not None:
        inject = {} if step.join.inject is None else {"inject": step.join.inject}
        plan["join"] = {"node": shown_name(step.join.node), "args": step.join.args, **inject}
    return plan


def outcome(observed: events.Observed) -> dict[str, Any]:
    """Return the outcome of a call as the model receives it."""
    said: dict[str, Any] = {"call": observed.call_id, "tool": shown_name(observed.tool), "status": observed.status}
    if observed.status == "succeeded":
        content = {"content": observed.content} if observed.content else {}
        said |= content | {"observation": observed.observation}
        # The rest of a truncated observation is read by this action.
        of_tasks = observed.of_tasks.whole if observed.of_tasks is not None else None
        if (artifact_id := of_tasks or readable_in(observed.observation, observed.artifacts)) is not None:
            read = {"artifact_id": artifact_id, "offset": 0, "length": 8000}
            said["more"] = {"next_node": READ_ARTIFACT, "args": read}
        return said
    if observed.failure is not None:
        said |= {
            "error": observed.failure.code,
            "reason": observed.failure.reason,
            "retryable": observed.failure.retryable,
        }
    return said if observed.observation is None else said | {"observation": observed.observation}
