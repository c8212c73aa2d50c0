"""Parses a model's reply into one action (docs/planner.md#what-else-is-understood).

`normalize_action` is the only parser of model output. It finds the objects in a reply (`scan`), chooses the one whose
shape is closest to an action, and reads it (`reading`, with `forms` and `arguments` for its arguments).
If there is no action, it says exactly what is wrong. It never guesses: all arguments come from the reply, and no part
of a broken object is read.

`names` holds the rules that the answer stream shares, so the streamed and the executed action follow the same rules.
"""
