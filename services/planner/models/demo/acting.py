"""Chooses one action for a situation, and gives the reasons."""

from dataclasses import dataclass
from typing import Any

from contracts.wire.default_models import DEMO_MODEL
from services.planner.conversation.encoding import compact
from services.planner.models.demo import answering, background, choosing, planning
from services.planner.models.demo.choosing import Choice
from services.planner.models.demo.situation import Situation, Tried

NAME = DEMO_MODEL
WARNING = f"{NAME} answered: a rule-based demo model, not a language model; configure RUNWIRE_MODEL"
MAX_NAMES_LISTED = 8
MAX_ATTEMPTS = 4
"""After this many steps it answers from the results so far."""
MAX_RECALLED_CHARACTERS = 300
MAX_SUMMARY_LINES, MAX_SUMMARISED_CHARACTERS = 30, 120
_NEEDED = "Set RUNWIRE_MODEL, or a provider's key such as OPENAI_API_KEY, and a language model answers instead."


@dataclass(frozen=True, slots=True)
class Act:
    """One reply of the demo model: its reasoning, and the text of its action."""

    reasoning: str
    text: str


def act(situation: Situation) -> Act:
    """Reply as the run's kind and strategy ask for it."""
    if situation.summarises:
        return _answer(situation, "I list what was said.", _summary(situation))
    if situation.reported:
        return _answer(situation, "I tell what the tasks found.", background.report(situation.reported))
    return _planned(situation) if situation.stage else _next_action(situation)


def _next_action(situation: Situation) -> Act:
    """Choose: answer from the last success, else call the best tool not tried yet, else name what is missing."""
    if (task := background.next_task(situation)) is not None:
        return _action(situation, f"This can go on in the background: {task['query']}", "task", task)
    if text := background.begun(situation):
        return _answer(situation, "The tasks have begun. That is what I can say.", text)
    last = situation.tried[-1] if situation.tried else ()
    succeeded = [tried for tried in last if tried.reason is None]
    failed = [tried for tried in last if tried.reason is not None]
    if succeeded:
        reasoning = f"{_listed([tried.tool for tried in succeeded])} answered. That is what I can say."
        return _answer(situation, reasoning, _from_results(succeeded, failed))
    if not situation.must_answer and len(situation.tried) < MAX_ATTEMPTS:
        if not situation.tried and (several := choosing.parts(situation)):
            return _plan(situation, several)
        without = {tried.tool for step in situation.tried for tried in step}
        if ranked := choosing.rank(situation, without=without):
            return _call(situation, ranked[0], failed)
    if situation.tried:
        failures = [tried for step in situation.tried for tried in step if tried.reason is not None]
        return _answer(situation, "Nothing that I could try worked.", _from_failures(failures), followup=True)
    return _answer(
        situation,
        "No tool here fits the question, and I know nothing by myself.",
        _without_tools(situation) + _recalled(situation),
        followup=True,
    )


def _planned(situation: Situation) -> Act:
    """Plan, or answer from what came of the plan."""
    if situation.stage == "plan":
        return Act(*planning.plan(situation, _without_tools(situation) + _recalled(situation)))
    return Act(*planning.answer(situation))


def _call(situation: Situation, choice: Choice, failed: list[Tried]) -> Act:
    before = f"{failed[-1].tool} failed: {failed[-1].reason} Next, " if failed else ""
    reasoning = f"{before}{choice.tool.name} fits best: {choice.because or 'it is the closest'}. I call it."
    return _action(situation, reasoning, choice.tool.name, choice.args)


def _plan(situation: Situation, choices: list[Choice]) -> Act:
    names = _listed([choice.tool.name for choice in choices])
    steps = [{"node": choice.tool.name, "args": choice.args} for choice in choices]
    reasoning = f"The question asks for {len(choices)} things that do not need each other: {names}. I run them at once."
    if situation.legacy:
        return _legacy(reasoning, None, {}, plan=steps)
    return _action(situation, reasoning, "plan", {"steps": steps})


def _from_results(succeeded: list[Tried], failed: list[Tried]) -> str:
    lines = [answering.tell(tried) for tried in succeeded]
    lines += [f"{tried.tool} failed: {tried.reason}" for tried in failed]
    return "\n\n".join(lines)


def _from_failures(failures: list[Tried]) -> str:
    lines = [f"- {tried.tool}: {tried.reason}" for tried in failures]
    return "\n".join(["I could not answer this. What I tried failed:", *lines])


def _without_tools(situation: Situation) -> str:
    who = f"I am {NAME}, the rule-based demo model that replies when no language model is configured."
    if not situation.tools:
        return f"{who} I know nothing by myself, and no tools are running here that I could ask. {_NEEDED}"
    names = [tool.name for tool in situation.tools]
    more = len(names) - MAX_NAMES_LISTED
    shown = _listed(names[:MAX_NAMES_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"{who} None of the tools here fits the question, or it does not say what they need ({shown}). {_NEEDED}"


def _summary(situation: Situation) -> str:
    """List the turns of the context, behind the summary of those before."""
    lines = str(situation.context.get("summary", "")).splitlines()
    for turn in situation.context.get("turns", []):
        lines.append(f"- {_short(turn['question'])}: {_short(turn['answer'])}")
    return "\n".join(lines[-MAX_SUMMARY_LINES:])


def _short(text: str) -> str:
    return " ".join(text.split())[:MAX_SUMMARISED_CHARACTERS]


def _recalled(situation: Situation) -> str:
    """Name the turn before, to which the question may refer."""
    if not situation.past:
        return ""
    last = situation.past[-1]
    answer = f', and the answer was "{last.answer[:MAX_RECALLED_CHARACTERS]}"' if last.answer else ""
    return f'\n\nBefore this you asked "{last.question[:MAX_RECALLED_CHARACTERS]}"{answer}.'


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
    return _action(situation, reasoning, None if situation.legacy else "final_response", args)


def _action(situation: Situation, reasoning: str, node: str | None, args: dict[str, Any]) -> Act:
    if situation.legacy:
        return _legacy(reasoning, node, args)
    return Act(reasoning, compact({"next_node": node, "args": args}))


def _legacy(reasoning: str, node: str | None, args: dict[str, Any], plan: list[dict[str, Any]] | None = None) -> Act:
    action = {"thought": reasoning, "next_node": node, "args": args, "plan": plan, "join": None}
    return Act(reasoning, compact(action))


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
