"""JSON Schemas of tools: `checks` of schemas and values, and `bounds` of their cost."""
