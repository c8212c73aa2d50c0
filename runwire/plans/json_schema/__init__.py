"""What a JSON Schema says of the fields that templates name. Pure, and bounded by counted steps.

`fields` finds the fields of a schema and their types (`json_types`); both are read through `folding` (`$ref` and
combinators). `fitting` compares two schemas. `patterns` matches `patternProperties`, and `steps` counts the work.
"""
