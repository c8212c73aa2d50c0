"""The demo model as a `Model`: it chooses one action for a situation, gives the reasons, and streams its reply.

For a question that asks for work in the background it spawns tasks, and later answers from what they found. For one
about a page it proposes a table, columns or rows from the words of the question. Its answer begins with what the user
has decided about earlier proposals, with the real counts.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from contracts.runs.pages import PageView
from contracts.sessions.tasks import WITH_RESULT
from contracts.wire.operation import DEMO_MODEL
from services.planner.conversation.encoding import compact
from services.planner.models import wire
from services.planner.models.demo import choosing, planning
from services.planner.models.demo.situation import Situation, gather, situation_of
from services.planner.models.errors import ModelFailed
from services.planner.models.types import Delta, ModelRequest, Reply

_NEW = re.compile(r"\b(?:track|record|keep|manage|organi[sz]e|new table|table (?:for|of)|list of)\b", re.IGNORECASE)
_ADD = re.compile(r"\b(?:add|fill|insert|propose|suggest|enter|put)\b", re.IGNORECASE)
_COLUMN = re.compile(
    r"\bcolumns?\s+(?:called|named|for)?\s*[\"“']?(?P<name>[\w ]{1,40}?)[\"”']?\s*(?:$|[.,!?])", re.IGNORECASE
)
_SUBJECT = re.compile(
    r"\b(?:track(?: of)?|record|keep|manage|organi[sz]e|table (?:for|of)|list of)\s+(?:of\s+)?(?:my|our|the|all)?\s*"
    r"(?P<name>[\w -]+?)\s*(?:$|[.,!?]|\bwith\b)",
    re.IGNORECASE,
)
_WITH = re.compile(r"\bwith\s+(?:the\s+)?(?:columns?\s+)?(?P<names>[\w ,]+)", re.IGNORECASE)
_SET = re.compile(
    r"\b(?:set|change)\s+(?:the\s+)?(?P<column>[\w ]+?)\s+of\s+row\s+(?P<row>\d+)\s+to\s+(?P<value>[\w-]+)",
    re.IGNORECASE,
)
_DELETE = re.compile(r"\b(?:delete|remove)\s+row\s+(?P<row>\d+)", re.IGNORECASE)
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_USUAL_ROWS, _MOST_ROWS = 3, 10
_STATUS = {"name": "Status", "type": "select", "options": ["Open", "In progress", "Done"]}
_STAGES = ["Applied", "Interview", "Offer", "Rejected"]
_COLUMNS: dict[str, list[dict[str, Any]]] = {
    "applic": [
        {"name": "Company", "type": "text", "required": True},
        {"name": "Role", "type": "text"},
        {"name": "Stage", "type": "select", "options": _STAGES, "filterDisplay": "tab"},
        {"name": "Applied on", "type": "date"},
    ],
    "expens": [
        {"name": "What", "type": "text", "required": True},
        {"name": "Amount", "type": "number"},
        {"name": "Day", "type": "date"},
    ],
}
"""The beginning of a word of the question -> columns. Every other subject has a name, a status and a date."""


def _on_page(situation: Situation) -> tuple[str, str] | None:
    """Return reasoning and text of a reply on a page; None: the question asks for nothing of the page."""
    view = situation.page
    if view is None:
        return None
    proposed = _proposal(situation, view)
    if proposed is None and not view.notes:
        return None
    if proposed is not None:
        said, marker, value = proposed
        block = [said, f"{marker}: {compact(value)}"]
    else:
        first = (
            "Add three rows" if "data_proposal" in view.payloads and view.columns else "Make a table for my expenses"
        )
        values = [{"label": each, "value": each} for each in (first, "What can you do?")]
        block = [f"SUGGESTED_VALUES: {compact(values)}"]
    return "I look at the page and at what became of proposals.", "\n\n".join([*view.notes, *block])


def _proposal(situation: Situation, view: PageView) -> tuple[str, str, dict[str, Any]] | None:
    """Return a sentence, the marker and the data of a proposal; None: the question asks for none."""
    question, allowed = situation.question, set(view.payloads)
    column = _COLUMN.search(question) if _ADD.search(question) else None
    if view.columns and column is not None and "schema_proposal" in allowed:
        added = {"action": "add", "column": {"name": column["name"].strip().capitalize(), "type": "text"}}
        return "I propose one more column.", "SCHEMA_PROPOSAL", {"mode": "update", "operations": [added]}
    if view.columns and "data_proposal" in allowed and (operations := _operations(situation, view.columns)):
        noun = "rows" if all(each["action"] == "add" for each in operations) else "changes"
        return f"I propose {len(operations)} {noun}.", "DATA_PROPOSAL", {"operations": operations}
    if not _NEW.search(question) or "schema_proposal" not in allowed or view.columns:
        return None
    subject = _SUBJECT.search(question)
    name = (subject["name"] if subject else "things").strip().title()
    columns = _columns(question)
    shown = [{**each, "id": each["name"]} for each in columns]
    data = {
        "mode": "create",
        "table_name": name,
        "table_description": f"Made for: {question[:200]}",
        "operations": [{"action": "add", "column": each} for each in columns],
        "sample_rows": _rows(situation, shown)[:2],
    }
    return f"I propose a table for {name.lower()}.", "SCHEMA_PROPOSAL", data


def _operations(situation: Situation, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that the question adds, sets a cell of, or deletes."""
    question = situation.question
    changed = [
        {"action": "update", "row_id": int(each["row"]), "changes": {each["column"].capitalize(): each["value"]}}
        for each in _SET.finditer(question)
    ]
    deleted = [{"action": "delete", "row_id": int(each["row"])} for each in _DELETE.finditer(question)]
    rest = replace(situation, question=_DELETE.sub("", _SET.sub("", question)))
    added = _rows(rest, columns) if _ADD.search(rest.question) else []
    return [*({"action": "add", "data": row} for row in added), *changed, *deleted]


def _columns(question: str) -> list[dict[str, Any]]:
    named = _WITH.search(question)
    if named is not None:
        names = [each.strip().capitalize() for each in re.split(r",|\band\b", named["names"]) if each.strip()]
        return [
            {"name": each, "type": "text", "required": number == 0} for number, each in enumerate(dict.fromkeys(names))
        ]
    known = next((found for word, found in _COLUMNS.items() if word in question.lower()), None)
    return known or [{"name": "Name", "type": "text", "required": True}, _STATUS, {"name": "Date", "type": "date"}]


def _rows(situation: Situation, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return made-up rows, as many as the question says; what it has in quotes is the first column of each."""
    evidence = gather(situation.question, situation.asked_on)
    named = [str(each.value) for each in evidence.quoted]
    words = situation.question.lower().split()
    said = next((int(each.value) for each in evidence.numbers if isinstance(each.value, int)), None)
    count = said or next((_NUMBERS[word] for word in words if word in _NUMBERS), _USUAL_ROWS)
    count = len(named) or max(1, min(count, _MOST_ROWS))
    rows = []
    for number in range(count):
        row: dict[str, Any] = {}
        for at, column in enumerate(columns):
            options = column.get("options") or []
            match column["type"]:
                case "number":
                    row[column["name"]] = number + 1
                case "boolean":
                    row[column["name"]] = number % 2 == 0
                case "date":
                    row[column["name"]] = situation.asked_on
                case "select" if options:
                    row[column["name"]] = options[number % len(options)]
                case "text":
                    row[column["name"]] = named[number] if named and at == 0 else f"{column['name']} {number + 1}"
        rows.append({key: value for key, value in row.items() if value is not None})
    return rows


MAX_TASKS = 8
MAX_NAME_CHARACTERS = 60
GROUP = "background work"
_ASKED = re.compile(r"(?:\bdo (?:this|these|the following) )?\bin the background\b[\s:,.]*", re.IGNORECASE)
_PART = re.compile(
    r"(?<=\?)\s+|\s*[;\n]\s*|\.\s+(?=[A-Z])|,?\s+and\s+(?=(?:what|who|when|where|why|how|which|find|look|calculate)\b)",
    re.IGNORECASE,
)


def next_task(situation: Situation) -> dict[str, Any] | None:
    """Return the arguments of the next task that the question asks for; None: there is none, or one was refused."""
    parts, spawned = _parts(situation), situation.spawned
    if situation.must_answer or len(spawned) >= len(parts) or any(tried.reason is not None for tried in spawned):
        return None
    part = parts[len(spawned)]
    task = {"name": part[:MAX_NAME_CHARACTERS], "mode": "subagent", "query": part}
    if len(parts) == 1:
        return task
    return {**task, "group": GROUP, "group_sealed": len(spawned) == len(parts) - 1}


def begun(situation: Situation) -> str:
    """Return the answer once the tasks are spawned, with what the run waited for; empty: it asked for none."""
    if not situation.spawned or not _parts(situation):
        return ""
    results, queries, refused = [], [], []
    for tried in situation.spawned:
        waited = tried.observation.get("results") or [] if isinstance(tried.observation, dict) else []
        results += [_line(task) for task in waited]
        if tried.reason is not None:
            refused.append(f"Not begun: {tried.reason}")
        elif not waited:
            queries.append(f"- {tried.args.get('query', '')}")
    lead = ["I have begun this in the background. You get the results when it has ended:"] if queries else []
    return "\n".join([*results, *lead, *queries, *refused])


def report(tasks: list[dict[str, Any]]) -> str:
    """Return the answer of a run that reports on ended tasks. `tasks`: as the report's context holds them."""
    return "\n".join(["The work in the background has ended.", *map(_line, tasks)])


def _line(task: dict[str, Any]) -> str:
    name = task.get("name") or task.get("query") or task.get("tool") or task.get("task_id")
    if task.get("status") in WITH_RESULT:
        return f"- {name}: {task.get('result', '')}"
    return f"- {name}: {task.get('status')}" + (f" ({task['code']})" if task.get("code") else "")


def _parts(situation: Situation) -> list[str]:
    """Return what is to be done in the background, one text a task."""
    if not situation.tasks or not _ASKED.search(situation.question):
        return []
    texts = (part.strip(" ,") for part in _PART.split(_ASKED.sub("", situation.question)))
    return [text for text in texts if text][:MAX_TASKS]


NAME = DEMO_MODEL
WARNING = f"{NAME} answered: a rule-based demo model, not a language model; configure RUNWIRE_MODEL"
MAX_NAMES_LISTED = 8
MAX_ATTEMPTS = 4
"""After this many steps it answers from the results so far."""
MAX_RECALLED_CHARACTERS = 300
MAX_SUMMARY_LINES, MAX_SUMMARISED_CHARACTERS = 30, 120
_NEEDED = "Set RUNWIRE_MODEL, or a provider's key such as OPENAI_API_KEY, and a language model answers instead."
_PIECE = re.compile(r"\s*\S{1,8}|\s+$")


@dataclass(frozen=True, slots=True)
class Act:
    """One reply of the demo model: its reasoning, and the text of its action."""

    reasoning: str
    text: str


class DemoModel:
    """Replies by rules, from the facts of a request. `pause_s`: time between two deltas."""

    def __init__(self, *, pause_s: float = 0.004) -> None:
        self._pause_s = pause_s

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed for any other name."""
        if request.model != NAME:
            raise ModelFailed("model_failed", f"there is no model {request.model}; the demo model is {NAME}", calls=0)
        reply = play(request)
        for piece in pieces(reply.reasoning):
            yield Delta(reasoning=piece)
            await asyncio.sleep(self._pause_s)
        for piece in pieces(reply.text):
            yield Delta(piece)
            await asyncio.sleep(self._pause_s)
        usage = wire.estimate(request.messages, reply.text, reply.reasoning).model_copy(
            update={"cost_usd": 0.0, "estimated": False}
        )
        yield Reply(text=reply.text, reasoning=reply.reasoning, usage=usage, finish_reason="stop", model=NAME)


def pieces(text: str) -> Iterator[str]:
    """Split a text into small pieces, like the deltas of a model."""
    yield from _PIECE.findall(text)


def play(request: ModelRequest) -> Act:
    """Reply to a request as the run's kind and strategy ask for it: reasoning, and the text of one action."""
    situation = situation_of(request)
    if situation.summarises:
        lines = str(situation.context.get("summary", "")).splitlines()
        for turn in situation.context.get("turns", []):
            said = (" ".join(turn[name].split())[:MAX_SUMMARISED_CHARACTERS] for name in ("question", "answer"))
            lines.append(f"- {': '.join(said)}")
        return _answer(situation, "I list what was said.", "\n".join(lines[-MAX_SUMMARY_LINES:]))
    if situation.reported:
        return _answer(situation, "I tell what the tasks found.", report(situation.reported))
    if not situation.tried and (on_page := _on_page(situation)) is not None:
        return Act(*on_page)
    if situation.stage == "plan":
        return Act(*planning.plan(situation, _without_tools(situation)))
    return Act(*planning.answer(situation)) if situation.stage else _next_action(situation)


def _next_action(situation: Situation) -> Act:
    """Choose: answer from the last success, else call the best tool not tried yet, else name what is missing."""
    if (task := next_task(situation)) is not None:
        return _action(situation, f"This can go on in the background: {task['query']}", "task", task)
    if text := begun(situation):
        return _answer(situation, "The tasks have begun. That is what I can say.", text)
    last = situation.tried[-1] if situation.tried else ()
    succeeded = [tried for tried in last if tried.reason is None]
    failed = [tried for tried in last if tried.reason is not None]
    if succeeded:
        reasoning = f"{_listed([tried.tool for tried in succeeded])} answered. That is what I can say."
        return _answer(situation, reasoning, "\n\n".join(map(planning.tell, [*succeeded, *failed])))
    if not situation.must_answer and len(situation.tried) < MAX_ATTEMPTS:
        if not situation.tried and (several := choosing.parts(situation)):
            names = _listed([choice.tool.name for choice in several])
            steps = [{"node": choice.tool.name, "args": choice.args} for choice in several]
            things = f"{len(several)} things that do not need each other"
            reasoning = f"The question asks for {things}: {names}. I run them at once."
            return _action(situation, reasoning, "plan", {"steps": steps})
        if ranked := choosing.rank(situation, without={tried.tool for step in situation.tried for tried in step}):
            tool, args, because = ranked[0].tool.name, ranked[0].args, ranked[0].because
            before = f"{failed[-1].tool} failed: {failed[-1].reason} Next, " if failed else ""
            reasoning = f"{before}{tool} fits best: {because or 'it is the closest'}. I call it."
            return _action(situation, reasoning, tool, args)
    if situation.tried:
        failures = [f"- {tried.tool}: {tried.reason}" for step in situation.tried for tried in step if tried.reason]
        text = "\n".join(["I could not answer this. What I tried failed:", *failures])
        return _answer(situation, "Nothing that I could try worked.", text, followup=True)
    reasoning = "No tool here fits the question, and I know nothing by myself."
    return _answer(situation, reasoning, _without_tools(situation), followup=True)


def _without_tools(situation: Situation) -> str:
    """Say what the demo model is, and name the turn before, to which the question may refer."""
    who = f"I am {NAME}, the rule-based demo model that replies when no language model is configured."
    if situation.tools:
        names = [tool.name for tool in situation.tools]
        more = len(names) - MAX_NAMES_LISTED
        shown = _listed(names[:MAX_NAMES_LISTED]) + (f" and {more} more" if more > 0 else "")
        text = f"{who} None of the tools here fits the question, or it does not say what they need ({shown}). {_NEEDED}"
    else:
        text = f"{who} I know nothing by myself, and no tools are running here that I could ask. {_NEEDED}"
    if not situation.past:
        return text
    last = situation.past[-1]
    answer = f', and the answer was "{last.answer[:MAX_RECALLED_CHARACTERS]}"' if last.answer else ""
    return f'{text}\n\nBefore this you asked "{last.question[:MAX_RECALLED_CHARACTERS]}"{answer}.'


def _answer(situation: Situation, reasoning: str, text: str, *, followup: bool = False) -> Act:
    if situation.images:
        given = "an image" if len(situation.images) == 1 else f"{len(situation.images)} images"
        listed = _listed(list(situation.images))
        text = f"{text}\n\nI was given {given} ({listed}), and cannot see: I am only a demo model."
    if situation.text_alone:
        return Act(reasoning, text)
    args: dict[str, Any] = {"answer": text, "warnings": [WARNING]}
    if followup:
        args["requires_followup"] = True
    return _action(situation, reasoning, "final_response", args)


def _action(situation: Situation, reasoning: str, node: str, args: dict[str, Any]) -> Act:
    action: dict[str, Any] = {"next_node": node, "args": args}
    if situation.legacy:
        plan = args["steps"] if node == "plan" else None
        named = None if node in {"plan", "final_response"} else node
        action = {"thought": reasoning, "next_node": named, "args": {} if plan else args, "plan": plan, "join": None}
    return Act(reasoning, compact(action))


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
