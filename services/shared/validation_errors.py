"""Describe in one sentence why a value does not fit a model. Never with the value, which may be secret or long."""

from pydantic import ValidationError


def first_fault(error: ValidationError) -> str:
    """Return the place and the reason of the first fault."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first["loc"] else first["msg"]
