"""Background tasks of the demo model: a question that asks for work in the background, and the report on it."""

import re
from typing import Any

from contracts.sessions.tasks import WITH_RESULT
from services.planner.models.demo.situation import Situation

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
