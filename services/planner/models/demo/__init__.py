"""`builtin/rehearsal`: the demo model, which replies by rules, so that a fresh checkout answers and tests repeat.

It gets the same requests as any model, decides from their facts, and replies in the form that the run asks for. It
chooses a tool by the words of the question, fills the arguments from the question and the schema only, answers from the
tool's result, and names itself in `warnings`. Deterministic; no I/O; no rule names a tool.
"""

from services.planner.models.demo.acting import NAME, WARNING, Act, DemoModel, pieces, play

__all__ = ["NAME", "PROVIDER", "WARNING", "Act", "DemoModel", "pieces", "play"]

PROVIDER = NAME.partition("/")[0]
"""The prefix of the names that belong to it."""
