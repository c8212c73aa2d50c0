"""The annotations of a tool's output schema and what they do to its result (docs/tools.md).

Pure functions on JSON values. No function here raises on any value.

`artifact`, `stream`, `stream_id` and `source_field` annotate a property, `produces_sources` a model. `annotations` says
which of them apply to a value; with them `separation` takes a result apart. The tool runner separates each result once.
The planner redacts again, for results that still hold annotated values.
"""
