"""The names in subjects and keys: ids, tenants, tools and messages, each with its one accepted form.

Rule: a name that comes from outside is checked here before it becomes part of a subject or key.

A run, an artifact and a trace have an id of 32 lower-case hexadecimal digits. `new_id` makes a UUIDv7 (RFC 9562), so
ids sort by the time at which they were made. `run_id_for_key` derives an id from an idempotency key, `image_id` from a
run and an image, `started_run_id` from what started a run of a schedule.
"""

import hashlib
import os
import re
import time

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


_OWN_SESSION = "run-"
_RANDOM_BITS = (1 << 74) - 1
_VERSION_AND_VARIANT = (0x7 << 76) | (0b10 << 62)


def new_id() -> str:
    """Make a UUIDv7 as 32 hexadecimal digits: 48 bits of Unix milliseconds, then randomness."""
    noise = int.from_bytes(os.urandom(10), "big") & _RANDOM_BITS
    high, low = noise >> 62, noise & ((1 << 62) - 1)
    return f"{unix_ms() << 80 | _VERSION_AND_VARIANT | high << 64 | low:032x}"


class Clock:
    """Unix time in ms that goes on by itself, and is set by `follow` alone, for all of this process.

    It begins with the machine's clock, which may be wrong, or be set while this process runs.
    """

    def __init__(self) -> None:
        self._ahead_ms = time.time_ns() // 1_000_000 - _steady_ms()

    def now_ms(self) -> int:
        """Return the time."""
        return _steady_ms() + self._ahead_ms

    def follow(self, other_ms: int, asked_ms: int) -> None:
        """Take over another clock where it differs certainly. It showed `other_ms` between `asked_ms` and now."""
        least, most = other_ms - self.now_ms(), other_ms - asked_ms
        if least > _TOLERATED_MS or most < -_TOLERATED_MS:
            self._ahead_ms += (least + most) // 2


def _steady_ms() -> int:
    return (time.monotonic_ns() if _STEADY is None else time.clock_gettime_ns(_STEADY)) // 1_000_000


_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", None)
"""Of Linux: it counts the time of a suspended machine too, as the clocks of others do."""
_TOLERATED_MS = 500
CLOCK = Clock()
"""In services the clock of NATS."""
unix_ms = CLOCK.now_ms


def derived_id(*parts: object) -> str:
    """Return the id that follows from these parts: the same parts always give the same id."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


def run_id_for_key(tenant: str, key: str) -> str:
    """Derive the id of a run from an idempotency key: the same tenant and key always give the same run."""
    return derived_id(tenant, key)


def started_run_id(tenant: str, schedule: str, occasion: int | str) -> str:
    """Derive the id of a run of a schedule from its fire time in Unix ms, or from the id of a webhook's delivery."""
    return derived_id(tenant, "schedule", schedule, occasion)


def image_id(run: str, number: int, sha256: str) -> str:
    """Derive the artifact id of image `number` of a run, so that a repeated request stores it once."""
    return derived_id(run, "image", number, sha256)


def task_id(run: str, call_id: str) -> str:
    """Derive the id of the background task that a call of a run spawns. It is the id of the task's own run."""
    return derived_id(run, call_id, "task")


def apply_run_id(proposal: str, choice: str, attempt: int) -> str:
    """Derive the id of the run that applies a choice of a proposal, so that a repeated apply finds the same run."""
    return derived_id(proposal, "apply", choice, attempt)


def payload_id(run: str) -> str:
    """Derive the id of the payload of a turn. There is one at most."""
    return derived_id(run, "payload")


def own_session_id(run: str) -> str:
    """Return the id under which a later request continues from a run that was requested without a session."""
    return f"{_OWN_SESSION}{run}"


def run_of_own_session(session_id: str) -> str | None:
    """Return the run that a session id of `own_session_id` continues from; None for any other session."""
    run = session_id.removeprefix(_OWN_SESSION)
    return run if run != session_id and ID.pattern.fullmatch(run) else None
