"""JSON Schemas of tools: `checks` of schemas and values, `bounds` of their cost, and the `graph` of references."""
