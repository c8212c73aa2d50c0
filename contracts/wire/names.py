"""The names in subjects and keys: ids, tenants, tools and messages, each with its one accepted form.

Rule: a name that comes from outside is checked here before it becomes part of a subject or key.
"""

import re

_SHOWN_CHARACTERS = 40


class InvalidName(ValueError):
    """A name cannot be part of a subject or key. The text says which name, and what form is expected."""


class Form:
    """The form of a kind of name. `kind`: what an error text calls such a name."""

    def __init__(self, kind: str, pattern: str) -> None:
        self.kind = kind
        self.pattern = re.compile(pattern, re.ASCII)

    def checked(self, value: object) -> str:
        """Return `value` if the whole of it has this form, else raise InvalidName."""
        if isinstance(value, str) and self.pattern.fullmatch(value):
            return value
        shown = repr(value)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[:_SHOWN_CHARACTERS] + "…"
        raise InvalidName(f"{shown} is not a {self.kind}: expected {self.pattern.pattern}")


ID = Form("valid id", r"[0-9a-f]{32}")
"""Of a run, an artifact, an instance of a service."""
TENANT = Form("tenant name", r"[a-z0-9_-]{1,64}")
TOOL_NAME = Form("tool name", r"[A-Za-z0-9_-]{1,64}")
MESSAGE = Form("message name", r"[A-Za-z0-9_-]{1,64}")
"""Of a message of a run: a call id, a timer."""
checked_id, checked_tenant, checked_tool = ID.checked, TENANT.checked, TOOL_NAME.checked
_ROUND_KEY = re.compile(rf"({ID.pattern.pattern})\.({MESSAGE.pattern.pattern})(?:~([1-9][0-9]{{0,5}}))?", re.ASCII)


def outcome_of(call_id: str, round_: int = 0) -> str:
    """Return the name of the message with the outcome of a call, by the round that ended it."""
    return f"{call_id}-r{round_}" if round_ else call_id


def pause_of(call_id: str, round_: int) -> str:
    """Return the name of the message with the pause that ended a round of a call."""
    return f"{call_id}-p{round_}"


def round_key(run: str, call_id: str, round_: int = 0) -> str:
    """Return what identifies one round of a call over all runs. That of the first round is its idempotency key."""
    return f"{run}.{call_id}~{round_}" if round_ else f"{run}.{call_id}"


def parsed_round_key(key: str) -> tuple[str, str, int]:
    """Return run, call id and round of a `round_key`. Raises InvalidName."""
    found = _ROUND_KEY.fullmatch(key)
    if found is None:
        raise InvalidName(f"{shortened(key)!r} is not the key of a call's round: expected {_ROUND_KEY.pattern}")
    run, call_id, round_ = found.groups()
    return run, call_id, int(round_ or 0)


def shortened(name: str) -> str:
    """Return the beginning of a name, for an error text."""
    return name[:_SHOWN_CHARACTERS]
