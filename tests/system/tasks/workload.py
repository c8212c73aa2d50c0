"""What runs do in a storm over background tasks: scripts with groups and jobs."""

import random
from typing import Any

from tests.system.tasks.model import Action, Script, Turn, call, job, subagent

AGENTS = """
[default]
[default.tasks]
spawn_requires_confirmation = false
retain_timeout_s = 20
budget_share = 0.3

[asks]
[asks.tasks]
retain_timeout_s = 20

[hasty]
[hasty.tasks]
spawn_requires_confirmation = false
group_timeout_s = 3
retain_timeout_s = 1
"""
"""`hasty`: its groups and its waiting end by time-outs. `asks`: a person is asked before each spawn."""
_AGENTS = ("default", "default", "asks", "hasty")
_ON_BUSY = ("queue", "queue", "queue", "steer", "cancel")
_MERGES = ("APPEND", "APPEND", "REPLACE", "HUMAN_GATED")
_REPORTS = ("all", "all", "all", "any", "none")
_JOBS = ("once", "once", "pay", "broken")
_MS = (20, 100, 700, 2500)
_LIMITS: tuple[dict[str, int], ...] = ({}, {}, {"max_tokens": 900}, {"max_tool_calls": 10}, {"max_tokens": 250})


def request(rng: random.Random, nth: str) -> dict[str, Any]:
    return {
        "query": _script(rng, nth).query,
        "agent": rng.choice(_AGENTS),
        "on_busy": rng.choice(_ON_BUSY),
        "limits": rng.choice(_LIMITS),
        "tool_context": rng.choice(({}, {"customer": nth})),
    }


def _script(rng: random.Random, nth: str) -> Script:
    turns: list[Turn] = []
    for part in range(rng.choice([1, 1, 2])):
        kind = rng.random()
        if kind < 0.55:
            turns += _group(rng, f"{nth}-{part}")
        elif kind < 0.85:
            gated = {"merge_strategy": rng.choice(_MERGES), "retain_turn": rng.random() < 0.2}
            turns.append([{**(one := _task(rng, f"{nth}-{part}", 1)), "args": {**one["args"], **gated}}])
        else:
            turns.append([call(rng.choice(("once", "pay", "paint")), ms=20), call("tasks_list")][: rng.choice([1, 2])])
    return Script(tuple(turns), f"answer {nth}", delay_ms=rng.choice([0, 20, 200]), pace_ms=rng.choice([0, 2]))


def _group(rng: random.Random, name: str) -> list[Turn]:
    """Two or three spawns into one group, which is then sealed, awaited, cancelled, or left to the end of the run."""
    size = rng.choice([2, 2, 3])
    made = {"group_report": rng.choice(_REPORTS), "merge_strategy": rng.choice(_MERGES)}
    tasks = [_task(rng, f"{name}-{n}", 1) for n in range(size)]
    for n, task in enumerate(tasks):
        task["args"] |= {"group": name, **(made if n == 0 else {})}
    last, after = rng.choice(["retain", "seal", "seal later", "cancel", "status", "leave", "leave"]), list[Turn]()
    if last == "retain":
        tasks[-1]["args"]["retain_turn"] = True
    elif last == "seal":
        tasks[-1]["args"]["group_sealed"] = True
    elif last != "leave":
        after = [[call(f"tasks_{last.removesuffix(' later')}", group_id="$group")]]
    return [*([task] for task in tasks), *after]


def _task(rng: random.Random, name: str, depth: int) -> Action:
    """A job, or a subagent that calls a tool; one of the first depth may spawn a job of its own."""
    if rng.random() < 0.5:
        return job(rng.choice(_JOBS), rng.choice(_MS), name=name)
    turns: list[Turn] = [[call(rng.choice(("once", "pay")), ms=rng.choice(_MS))] for _ in range(rng.choice([0, 1, 1]))]
    if depth == 1 and rng.random() < 0.4:
        turns.append([_task(rng, f"{name}-below", 2)])
    fails = rng.random() < 0.12
    return subagent(Script(tuple(turns), f"found {name}", rng.choice([0, 50, 400]), fails=fails), name=name)
