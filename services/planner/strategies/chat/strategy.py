"""The strategy `chat`: the model speaks to the user in text, and calls tools in between (docs/chat.md).

One run is one turn of the assistant. Each request to the model is a part of it, until one asks for no tool. What the
model said is shown to it as it said it, hidden blocks included. Without native calls, calls stand as JSON behind it.

The prompt has eight sections. Those that are empty are left out.

Rule 1: what stays the same comes first, and what changes from turn to turn last: a provider's cache finds the first
part again in each turn on a page. So the sections on context and conversation data follow the format rules.
Rule 2: what a page shows is data, between markers that it cannot close.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.runs.events import RunEvent, RunStarted, Step
from contracts.runs.pages import PageView
from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.conversation import native, texts
from services.planner.conversation.catalogue import HINT_LIMIT, clean, shown_name, with_agents
from services.planner.conversation.encoding import compact
from services.planner.conversation.messages import Dialect, Message, between, guidance, minute_of, says, system
from services.planner.conversation.native import NativeTools
from services.planner.conversation.rendering import JsonActions
from services.planner.models.types import ModelRequest
from services.planner.run.state.run import Run
from services.planner.strategies.base import AskingStrategy, Prefix
from services.planner.strategies.chat import reading
from services.shared.runs.pages.page_types import PayloadType, manifest
from services.shared.runs.pages.registry import Pages
from services.shared.tools.builtin import GET_PAYLOAD_SPEC

IDENTITY = """\
You are the assistant of an application. Answer the user in text, in the user's language. Call tools where the answer \
needs them: you may say a sentence before, and go on when you have their results.
- Be brief and plain: no headings for a short answer, no repetition of what the user sees on the page.
- Most conversations go the same way: the user says what they want to keep track of, you propose how to keep it, then \
help to fill it, and answer questions about it. See where the user stands on that way, and take the next step only.
- Ask when it is not clear what is wanted; do not ask for what the page or a tool tells you.
- Never say that you have done what you have only proposed, or what a tool has not confirmed."""

_PROPOSALS = """\
How proposals work: a proposal is a marked block in your text. The user does not see the block but a preview, and \
applies it, or parts of it, or dismisses it. You never apply anything. Make one proposal per reply, with a sentence \
before it that says what it changes and why. What became of it you are told in the next turn, with real counts."""

_NO_PAGE = "The user is not on a page of the application that you know of: answer what is asked."

_STRUCTURED = "STRUCTURED RESPONSES (at most one per reply, the whole JSON in one piece, not in a code block):"

_ACTIONS = "CLIENT ACTIONS (offered to the user as buttons by SUGGESTED_ACTIONS, never done by you):"

_FORMAT = """\
Write plain text or Markdown. At the end of a reply you may offer two to four answers that the user can choose with a \
click. The user does not see this block, but buttons:
SUGGESTED_VALUES: [{"label": "<on the button>", "value": "<what the user says by clicking>"}]
- Offer them after a table or a column was made, after rows were filled in, after an answer that leads on, and where \
the user seems unsure. Do not offer them together with a proposal, or when nothing is left to do."""

_ACTIONS_FORMAT = """\
- A button that does something on the page is one of the client actions above:
SUGGESTED_ACTIONS: [{"label": "<on the button>", "action": "<name of the action>", "handler": "client"}]"""

_BLOCKS = """\
- A marker and its JSON count wherever you write them. To talk about a marker, leave out its colon."""

LAST = "Answer now, from what you have, without calling a tool: {because}. Say what is missing."


def system_message(
    view: PageView | None,
    tools: Sequence[ToolSpec],
    agent: Agent,
    types: Mapping[str, PayloadType],
    further: Sequence[str] = (),
    *,
    asked_at: int = 0,
) -> Message:
    """Return the system message: what stays the same on the page, then what changes, each with a mark for the cache.

    `further`: sections of the runtime, behind the stable ones. `asked_at`: Unix ms; 0: not known.
    """
    parts = [stable_text(view, tools, agent, types, further), *([changing_text(view, asked_at)] if view else [])]
    # The blank line between them belongs to the second, so that providers without parts of a message see it too.
    return system(parts[0], *(f"\n\n{part}" for part in parts[1:]))


def stable_text(
    view: PageView | None,
    tools: Sequence[ToolSpec],
    agent: Agent,
    types: Mapping[str, PayloadType],
    further: Sequence[str] = (),
) -> str:
    """Return the sections that stay the same on a page: of the eight, 1, 2, 6, 7 and 8."""
    payloads = [types[name] for name in (view.payloads if view is not None else []) if name in types]
    instructions = [each.instructions or f"{each.marker}: {each.description}" for each in payloads]
    actions = view.client_actions if view is not None else []
    identity = [IDENTITY, _PROPOSALS if payloads else "", texts.DATA, guidance(agent)]
    capabilities = [
        _listed("TOOLS:", [f"- {shown_name(each.name)}: {clean(each.description, HINT_LIMIT)}" for each in tools]),
        _listed(_STRUCTURED, [_blocks(instructions)] if instructions else []),
        _listed(_ACTIONS, [f"- {each.name}: {each.description}" for each in actions]),
    ]
    rules = [_FORMAT, _ACTIONS_FORMAT if actions else "", _BLOCKS]
    return _joined(
        ("", _blocks(identity)),
        ("PAGE INSTRUCTIONS", (view.persona if view is not None else "") or _NO_PAGE),
        ("CAPABILITIES", _blocks(capabilities)),
        ("HELP", view.help if view is not None else ""),
        ("FORMAT RULES", "\n".join(filter(None, rules))),
        *(("", each) for each in further),
    )


def changing_text(view: PageView, asked_at: int = 0) -> str:
    """Return the sections that change: of the eight, 4 and 5, then the date."""
    page = view.page
    place = " > ".join(filter(None, (page.name, page.tab, page.subtab)))
    context = f"User role: {view.role or 'user'}\n\nThe user is on the page {place}. It shows, as data:"
    payloads: list[dict[str, Any]] = [each.model_dump() for each in view.manifest]
    data = [manifest(payloads) or "", _listed("SINCE THEN:", [f"- {note}" for note in view.notes])]
    return _joined(
        ("CURRENT CONTEXT", f"{context}\n{between('page', view.context or '(nothing)')}"),
        ("CONVERSATION DATA", between("page", _blocks(data)) if any(data) else ""),
        ("", f"Current date and time: {minute_of(asked_at)} UTC" if asked_at else ""),
    )


def _listed(head: str, lines: Sequence[str]) -> str:
    return "\n".join([head, *lines]) if lines else ""


def _blocks(blocks: Sequence[str]) -> str:
    return "\n\n".join(filter(None, blocks))


def _joined(*sections: tuple[str, str]) -> str:
    return _blocks([f"== {head} ==\n{text}" if head and text else text for head, text in sections])


_COMPLAINT = "{reason}\nGo on in the way that is described above. Do not apologise or explain."


class Chat(AskingStrategy):
    """Asks for text and calls, part after part."""

    transport = "tools"
    may_spawn = True
    replies_hold_warnings = False

    def __init__(self, pages: Pages, **asking: Any) -> None:
        super().__init__(**asking)
        self._types = pages.payload_types

    def dialect(self, started: RunStarted) -> Dialect:
        """Return the dialect of a run."""
        return _ChatNative() if started.action_transport == "tools" else _ChatJson()

    def fold(self, run: Run, event: RunEvent) -> reading.ChatState:
        """Return the parts after an event."""
        return reading.fold(run, event, tuple(self._types.values()))

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build a request: the stable prefix, the history, and the notes of this turn."""
        started, is_native = run.opened, run.opened.action_transport == "tools"
        tools, tasks = with_agents(_of_page(started, tools), started.tasks), started.tasks is not None

        def render() -> Prefix:
            functions = native.functions(tools, tasks=tasks, only_tools=True)
            further = [texts.TASKS] if tasks else []
            if functions and not is_native:  # The model is not offered native calls.
                listed = "\n".join(compact(each["function"]) for each in functions)
                further.append(texts.FUNCTIONS.format(functions=listed))
            view, asked_at = started.page_view, started.request.requested_at
            return system_message(view, tools, agent, self._types, further, asked_at=asked_at), functions

        of_page = started.run_id if started.page_view is not None else ""
        asked = tuple(started.tasks.agents.items()) if started.tasks is not None else ()
        key = (tuple(started.tools.values()), started.request.agent, is_native, tasks, len(tools), of_page, asked)
        prefix, functions = self._prefix(key, render)
        facts = self._facts(run, tools, tasks_allowed=tasks)
        notes = self._renderer.rejections(run)
        if facts.steps_left == 1 or facts.tool_calls_left == 0:
            because = "this is your last reply" if facts.steps_left == 1 else "no tool call is left"
            notes.append(says("user", LAST.format(because=because)))
        offered = (self._callable(run, functions) or None) if is_native else None
        return self._request(run, facts, prefix, notes, functions=offered)

    def read(self, run: Run, tools: Sequence[ToolSpec]) -> reading.ChatReading:
        """Start reading a part."""
        started, state = run.opened, reading.state_of(run)
        tools = with_agents(_of_page(started, tools), started.tasks)
        return reading.ChatReading(
            {shown_name(spec.name): spec for spec in tools},
            lambda: state.scanner(run),
            lambda response: reading.answer_args(state, run, response),
            tasks=started.tasks is not None,
            **self._of_thoughts(run),
        )


def _of_page(started: RunStarted, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
    """Return the tools of the run that its page offers; last the one that reads payloads, where there are any."""
    view = started.page_view
    if view is None:
        return tools
    offered = [tool for tool in tools if view.tools is None or tool.name in view.tools]
    return [*offered, GET_PAYLOAD_SPEC] if view.manifest else offered


class _ChatNative(NativeTools):
    """Text, and native calls."""

    complaint = _COMPLAINT

    def decision(self, step: Step) -> Message:
        """Render a part of the turn, or an answer of an earlier turn."""
        if not step.calls:
            return says("assistant", _text(step))
        return {**super().decision(step), **({"content": said} if (said := _text(step)) else {})}


@dataclass(frozen=True, slots=True)
class _ChatJson(JsonActions):
    """Text, and calls as JSON behind it."""

    complaint = _COMPLAINT

    def decision(self, step: Step) -> Message:
        """Render a part of the turn, or an answer of an earlier turn."""
        text = _text(step)
        if not step.calls:
            return says("assistant", text)
        action = str(JsonActions.decision(self, step)["content"])
        return says("assistant", f"{text}\n{action}" if text else action)


def _text(step: Step) -> str:
    said = step.said if isinstance(step.said, str) else ""
    return said if said.strip() else step.answer or ""
