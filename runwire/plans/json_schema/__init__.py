"""What a JSON Schema says of the fields that templates name. Pure, and bounded by counted steps.

`fields` finds the fields of a schema and their types, and compares two schemas; both are read through `folding` (`$ref`
and combinators). `graph` follows references, and has the graph of a schema for the services.
`patterns` matches `patternProperties`, and `steps` counts the work.
"""
