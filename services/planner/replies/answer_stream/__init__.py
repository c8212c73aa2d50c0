"""Streams the answer while the model is still writing its reply. Pure; each character of a reply is read once.

A reply is one JSON object with any text around it. The text of `args.answer` (or `raw_answer`) is streamed, or `args`
itself if it is a text or a list of texts (one per line). This starts once it is certain that the action is final:

- The first object with a `next_node` of its own counts, as in the final parse. Text, thoughts and other objects
  before it do not count, nor does anything after it, nor do keys in nested objects other than `args`.
- Final nodes: `final_response` (padded, or in another case if no tool has that name), and null or "null" without a
  plan. If `args` comes first, the answer is held until the node is known: no call, plan or task is ever streamed.
- A plan *before* the first streamed character makes the object a plan; *after* it, the answer counts.
- Where the text stops being JSON, or a key is repeated that may occur once, streaming stops.

When the reply has ended, the strategy parses it as a whole, with the same format and tools, and `settle` compares. It
gives the rest of the answer as one chunk, which only the whole reply reveals: another answer key, a number, an encoded
or Python string. Or it says that the attempt is void: its text was streamed, but the reply is no action. Then the next
attempt starts from the beginning, and the joined chunks of the last attempt are the answer. Apart from void attempts
stream and parse always agree; if they did not, `settle` would report it (`another_action`, `another_answer`).

prose.py finds the beginning of an object, tokens.py reads one, stream.py follows its paths and compares.
"""

from services.planner.replies.answer_stream.stream import AnswerStream, Settled, Void, settle

__all__ = ["AnswerStream", "Settled", "Void", "settle"]
