"""Streams the answer while the model is still writing its reply.

Pure: no clock, no await; each character of a reply is read once.

A reply is one JSON object with any text around it. The text of `args.answer` (or `raw_answer`) is streamed, or `args`
itself if it is a text or a list of texts (one per line). This starts once it is certain that the action is final:

- The first object with a `next_node` of its own counts, as in the final parse. Text, thoughts and other objects
  before it do not count, nor does anything after it, nor do keys in nested objects other than `args`.
- Final nodes: `final_response` (padded, or in another case if no tool has that name), and null or "null" without a
  plan.
- If `args` comes first, the answer is held until the node is known. Nothing of a tool call, a plan or a task is ever
  streamed.
- A plan *before* the first streamed character makes the object a plan; *after* it, the answer counts.
- Where the text stops being JSON, or a key is repeated that may occur once, streaming stops.

When the reply has ended, the strategy parses it as a whole and compares:

    stream = AnswerStream(action_format=..., tools=...)
    ...                                         # for each part of the reply: show stream.feed(part) unless it is empty
    normalized = normalize_action(text, ..., action_format=..., tools=...)
    settled = settle(stream, normalized.action)

`settled` gives the rest of the answer, to be streamed as one chunk: text that only the whole reply reveals (another
answer key, a number, an encoded or Python string). Or it says that the attempt is void: its text was streamed, but the
reply is no action. Then the next attempt starts from the beginning, and the joined chunks of the last attempt are the
answer. The final parse also prefers a streamed answer to a plan after it, and adds a warning. Both must get the same
format and tools. Uncertain text is not streamed, so apart from void attempts stream and parse always agree. If they
did not, `settle` would report it (`another_action`, `another_answer`).

prose.py finds the beginning of an object, tokens.py reads one, stream.py follows its paths and compares.
"""

from services.planner.replies.answer_stream.stream import AnswerStream, Settled, Void, settle

__all__ = ["AnswerStream", "Settled", "Void", "settle"]
