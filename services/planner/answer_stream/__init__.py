"""The answer, shown while the model is still writing it. Pure: no clock, no await; each character of a reply is read once.

A reply is one JSON object (ACTIONS 1) in whatever the model wrote around it. What leaves early is `args.answer` (or `raw_answer`), or
`args` itself where that is a text or a list of texts (its lines), and only once it is certain that the action is final (ACTIONS 3):

- the first object that has a `next_node` of its own counts, as in the final parse; text, think tags and other objects before it and
  everything behind it do not, and neither do keys inside of anything but `args`;
- final is the node `final_response` (padded, or in another case when no tool is called that), null or "null" without a plan;
- when `args` comes first the answer is held until the node is known; of a tool call, a plan or a task nothing is ever given out;
- a plan *before* the first shown character makes the object a plan; *behind* it the answer stands and the plan is ignored;
- where the text stops being JSON, or a key comes twice that may come once, nothing more is given out.

When the reply has ended, the strategy parses it as a whole and brings both together:

    stream = AnswerStream(action_format=..., tools=...)
    async for piece in model: emit(stream.feed(piece)) where that is not empty
    stream.finish()
    settled = settle(stream, normalize_action(text, ...).action)

`settle` says what is still to be shown (what only the whole reply reveals: another answer key, a number, a decoded or Python string),
whether the shown text stands, or whether the attempt is void. Whatever it says, the product's rule holds afterwards: the chunks of the
last attempt, joined, are the answer.

prose.py finds where an object begins, tokens.py reads one, action.py knows the paths, stream.py is what callers use, settle.py compares.
"""

from .settle import PLAN_IGNORED, Settled, Void, settle
from .stream import AnswerStream

__all__ = ["PLAN_IGNORED", "AnswerStream", "Settled", "Void", "settle"]
