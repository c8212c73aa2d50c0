"""What the model of a run is shown of the conversation before it. Pure.

Rule 1: the newest turns are shown whole, as many as `recent_turns` and `max_tokens` allow. If the newest one alone is
longer than that, it is cut, with a mark.
Rule 2: older turns are represented by the summary. The model reads how many turns are neither shown nor summarised.
Rule 3: the same session and memory always give the same conversation, so a run that is folded again is rendered to the
same bytes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from contracts.runs.requests import ConversationMessage, Memory, RunRequested
from services.planner.conversation.compaction import middle_cut
from services.planner.conversation.encoding import BYTES_PER_TOKEN, compact, text_tokens
from services.planner.run.state.history import Conversation, PastTurn
from services.planner.sessions.tasks.reports import REPORTED_TASKS
from services.shared.sessions.state import Session, Turn

TURN_TOKENS = 50
"""What a turn takes beside its texts: the markers, the date, the form of the answer."""
MIN_CUT_TURN_TOKENS = 80
"""A turn is not cut to less than this. It is left out then."""
MIN_CUT_CHARACTERS = 8


def of_messages(messages: Sequence[ConversationMessage], memory: Memory) -> Conversation:
    """Return the conversation that a caller gave with the request.

    Several messages of a user in a row are one question with inputs; several of an assistant are one answer.
    """
    turns: list[PastTurn] = []
    for role, group in groupby(messages, key=lambda message: message.role):
        texts = [message.content for message in group]
        if role == "user":
            turns.append(PastTurn(question=texts[0], inputs=tuple(texts[1:])))
        else:
            turn = turns.pop() if turns else PastTurn(question="")
            turns.append(replace(turn, answer="\n\n".join(texts)))
    return bounded(turns, memory)


def of_session(session: Session, memory: Memory, reported: Collection[str] = ()) -> Conversation:
    """Return the conversation of a session. `reported`: tasks whose results the question itself holds."""
    turns = session.turns[max(0, len(session.turns) - memory.recent_turns) :]
    older = session.older_turns + len(session.turns) - len(turns)
    return bounded(
        list(map(turn_of, turns)),
        memory,
        summary=session.summary,
        summarised=session.summarised_turns,
        older=older,
        context=session.context,
        results=tuple(
            {"task_id": each.task_id, "name": each.name, "result": each.digest}
            for each in session.background.results
            if each.task_id not in reported
        ),
    )


def reported_in(request: RunRequested) -> set[str]:
    """Return the tasks that a run reports on."""
    tasks = request.llm_context.get(REPORTED_TASKS, []) if request.cause == "report" else []
    return {task["task_id"] for task in tasks}


def turn_of(turn: Turn) -> PastTurn:
    """Return a turn of a session as a model is shown it."""
    return PastTurn(
        question=turn.question,
        answer=turn.answer,
        inputs=tuple(turn.inputs),
        images=len(turn.attached),
        asked_at=turn.requested_at,
    )


def bounded(
    turns: Sequence[PastTurn],
    memory: Memory,
    *,
    summary: str = "",
    summarised: int = 0,
    older: int = 0,
    context: Mapping[str, Any] | None = None,
    results: tuple[Mapping[str, Any], ...] = (),
) -> Conversation:
    """Return as much of a conversation as the memory takes.

    Args:
        turns: oldest first.
        memory: `max_tokens` limits turns and summary together, in estimated tokens.
        summary: represents older turns.
        summarised: how many turns it represents, counted from the first one of the session.
        older: how many turns there were before `turns`.
        context: values of the session. They have a limit of their own.
        results: what tasks of the session have found, with a limit of its own too.
    """
    shown = shown_turns(turns, memory)
    if older + len(turns) == len(shown):
        summary = ""  # All that it represents is shown.
    if summary:
        summary = _summary_cut(summary, memory)
        shown = shown_turns(turns, memory, _tokens(summary))
    left_out = max(0, older + len(turns) - len(shown) - summarised)
    return Conversation(tuple(shown), left_out, summary, context or {}, results)


def shown_turns(turns: Sequence[PastTurn], memory: Memory, used_tokens: int = 0) -> list[PastTurn]:
    """Return the turns that are shown, oldest first. `used_tokens`: what else counts towards the limit."""
    left = memory.max_tokens - used_tokens - TURN_TOKENS  # The line before the conversation takes about as much.
    shown: list[PastTurn] = []
    for turn in reversed(turns[max(0, len(turns) - memory.recent_turns) :]):
        tokens = turn_tokens(turn)
        if tokens <= left:
            shown.append(turn)
            left -= tokens
            continue
        if not shown and left >= MIN_CUT_TURN_TOKENS:
            shown.append(_turn_cut(turn, left))
        break
    return shown[::-1]


def turn_tokens(turn: PastTurn) -> int:
    """Estimate the tokens of a turn as the model receives it."""
    return TURN_TOKENS + sum(map(_tokens, (turn.question, *turn.inputs, turn.answer)))


def _tokens(text: str) -> int:
    return text_tokens(compact(text))


def _turn_cut(turn: PastTurn, tokens: int) -> PastTurn:
    """Return the turn with all of its texts cut to the same length, so that it takes at most `tokens`."""
    limit = tokens * BYTES_PER_TOKEN
    cut = turn = replace(turn, inputs=("\n".join(turn.inputs),) if turn.inputs else ())
    while turn_tokens(cut) > tokens and limit >= MIN_CUT_CHARACTERS:
        cut = replace(
            turn,
            question=middle_cut(turn.question, limit),
            inputs=tuple(middle_cut(text, limit) for text in turn.inputs),
            answer=middle_cut(turn.answer, limit),
        )
        limit = limit * 7 // 8
    return cut


def _summary_cut(summary: str, memory: Memory) -> str:
    """Return at most half of what the memory takes."""
    limit = tokens = memory.max_tokens // 2
    cut = summary
    while _tokens(cut) > tokens and limit >= MIN_CUT_CHARACTERS:
        limit = limit * 7 // 8
        cut = middle_cut(summary, limit * BYTES_PER_TOKEN)
    return cut
