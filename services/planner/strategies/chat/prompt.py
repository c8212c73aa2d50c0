"""The prompt of the strategy `chat`: who the model is, how it calls tools, and what it may mark in its text."""

from collections.abc import Sequence

from contracts.runs.pages import PageView
from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.conversation import texts as shared_texts

IDENTITY = """\
You are the assistant of an application. Answer the user in text, in the user's language. Call tools where the answer \
needs them: you may say a sentence before, and go on when you have their results."""

SUGGESTIONS = """\
# Suggestions
At the end of a reply you may offer up to four answers that the user can choose with a click. The user does not see \
this block, but buttons:
SUGGESTED_VALUES: [{"label": "<on the button>", "value": "<what the user says by clicking>"}]"""

LAST = "Answer now, from what you have, without calling a tool: {because}. Say what is missing."


def system_text(page_view: PageView | None, tools: Sequence[ToolSpec], agent: Agent) -> str:
    """Return the text of the system message."""
    del page_view, tools
    skills = [f"- {skill.strip()}" for skill in agent.skills]
    guidance = "\n".join(part for part in [agent.system_prompt.strip(), *skills] if part)
    sections = [IDENTITY, shared_texts.DATA, f"# Guidance\n{guidance}" if guidance else "", SUGGESTIONS]
    return "\n\n".join(section for section in sections if section)
