"""The answer, shown while the model is still writing it.

Pure: no clock, no await; each character of a reply is read once.

A reply is one JSON object in whatever the model wrote around it. What leaves early is `args.answer` (or `raw_answer`),
or `args` itself where that is a text or a list of texts (its lines), and only once it is certain that the action is
final:

- the first object that has a `next_node` of its own counts, as in the final parse; text, think tags and other objects
  before it and everything behind it do not, and neither do keys inside of anything but `args`;
- final is the node `final_response` (padded, or in another case when no tool is called that), null or "null" without a
  plan;
- when `args` comes first the answer is held until the node is known; of a tool call, a plan or a task nothing is ever
  given out;
- a plan *before* the first shown character makes the object a plan; *behind* it the answer stands;
- where the text stops being JSON, or a key comes twice that may come once, nothing more is given out.

When the reply has ended, the strategy parses it as a whole and brings both together:

    stream = AnswerStream(action_format=..., tools=...)
    ...                                         # each piece of the reply: show stream.feed(piece) unless it is empty
    normalized = normalize_action(text, ..., action_format=..., tools=...)
    settled = settle(stream, normalized.action)

`settled` says what is still to be shown as one chunk (what only the whole reply reveals: another answer key, a number,
an encoded or Python string), or that the attempt is void: its text was shown, and the reply turns out to be no action.
Then the next attempt begins anew, and the chunks of the last attempt, joined, are the answer. A shown answer stands
against a plan behind it because the final parse reads it so, too, and warns. Both must be told the same format and
tools. Of text that is in doubt nothing is shown early, so beside a void attempt the two never disagree; if they did,
`settle` would say so (`another_action`, `another_answer`) rather than let them.

prose.py finds where an object begins, tokens.py reads one, action.py knows the paths, stream.py is what callers use,
settle.py compares.
"""

from services.planner.replies.answer_stream.settle import Settled, Void, settle
from services.planner.replies.answer_stream.stream import AnswerStream

__all__ = ["AnswerStream", "Settled", "Void", "settle"]
