"""The lines that name API keys: read them, and make them.

    tenant sha256hex [name=..] [rights=run,approve,apply,operate] [user=..] [role=..] [max_runs=..] [tools=a,b]
        [agents=x,y] [max_tokens_per_day=..] [max_cost_usd_per_day=..]

Rule 1: keys are 32 random bytes. Only their SHA-256 is stored.
Rule 2: errors name the line and the field and quote no value: a line may contain the key itself by mistake.
Rule 3: what cannot be read is refused: a misspelt right or limit must not give a key more than was meant.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from contracts.wire import names

from .caller import ALL_RIGHTS, Caller, digest_of

FORM = (
    "tenant sha256hex [name=..] [rights=..] [user=..] [role=..] [max_runs=..] [tools=..] [agents=..] "
    "[max_tokens_per_day=..] [max_cost_usd_per_day=..]"
)
MAX_USER_CHARACTERS = 200
_COLUMNS = 2
_KEY_ID_CHARACTERS = 12
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_ROLE = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_TOKENS = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_DOLLARS = "dollars above 0, as 5 or 0.25, with at most six digits after the point"
_MONEY = re.compile(r"(?=[0-9.]*[1-9])[0-9]{1,9}(\.[0-9]{1,6})?", re.ASCII)
_BETWEEN_KEYS = re.compile(r",(?=\s*[^\s,]+[ \t]+[0-9A-Fa-f]{16})")
"""A comma between two keys: what follows it is a tenant and a digest, not one more right or tool."""
_NO_AGENT = "names no agent; a key that starts no runs has no right `run`"
_PREFIX = "rw_"


class KeyLineInvalid(Exception):
    """A line cannot be read. The text is one sentence, with the source, the line and the field."""


def new_key(tenant: str, options: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return a new key for the caller, and its line for the gateway. `options` are fields of the line by their names.

    Raises InvalidName and KeyLineInvalid.
    """
    key = _PREFIX + secrets.token_urlsafe(32)
    fields = [f"{name}={value}" for name, value in (options or {}).items()]
    line = " ".join([names.checked_tenant(tenant), digest_of(key), *fields])
    _parsed(line, "the new key")
    return key, line


def callers(text: str, source: str) -> dict[str, Caller]:
    """Return the caller of each key by its digest. Empty lines and those that begin with `#` are skipped.

    `source`: where the text comes from, as errors name it. Raises KeyLineInvalid.
    """
    found: dict[str, Caller] = {}
    line_of: dict[str | tuple[str, str], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for part in [] if line.lstrip().startswith("#") else _BETWEEN_KEYS.split(line):
            if not (entry := part.strip(" \t,")):
                continue
            digest, caller = _parsed(entry, f"{source}, line {number}")
            for what, used in (("key", digest), ("name", (caller.tenant, caller.key_id))):
                if used in line_of:
                    raise KeyLineInvalid(f"{source}, line {number}: its {what} stands in line {line_of[used]} too.")
                line_of[used] = number
            found[digest] = caller
    return found


def _parsed(line: str, where: str) -> tuple[str, Caller]:
    tenant, _, rest = line.partition(" ")
    digest, *fields = rest.split() or [""]
    try:
        names.checked_tenant(tenant)
    except names.InvalidName as error:
        raise KeyLineInvalid(f"{where}: does not begin with a tenant's name; expected `{FORM}`.") from error
    if not _DIGEST.fullmatch(digest):
        raise KeyLineInvalid(
            f"{where}: the second column is not the SHA-256 of a key, of 64 lower-case hexadecimal digits."
        )
    values: dict[str, Any] = {"key_id": digest[:_KEY_ID_CHARACTERS], "digest": digest}
    given: set[str] = set()
    for column, field in enumerate(fields, _COLUMNS + 1):
        name, _, value = field.partition("=")
        if name not in _FIELDS:
            raise KeyLineInvalid(f"{where}, column {column}: is none of {', '.join(f'{known}=' for known in _FIELDS)}.")
        if name in given:
            raise KeyLineInvalid(f"{where}, {name}: stands there twice.")
        given.add(name)
        attribute, parse = _FIELDS[name]
        try:
            values[attribute] = parse(value)
        except ValueError as error:
            raise KeyLineInvalid(f"{where}, {name}: {error}.") from None
    return digest, Caller(tenant=tenant, **values)


def _matching(form: re.Pattern[str], expected: str, convert: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """Return what reads a value of this form."""

    def read(value: str) -> Any:
        if not form.fullmatch(value):
            raise ValueError(f"expected {expected}")
        return convert(value)

    return read


def _rights(value: str) -> frozenset[str]:
    found = frozenset(_listed(value))
    if not found <= ALL_RIGHTS:
        raise ValueError("expected some of run, approve, apply, operate, separated by commas; empty: reading only")
    return found


def _user(value: str) -> str:
    if not 0 < len(value) <= MAX_USER_CHARACTERS or not value.isprintable():
        raise ValueError(f"expected a user_id of 1 to {MAX_USER_CHARACTERS} characters without white space")
    if any(f"{name}=" in value for name in _FIELDS):
        raise ValueError("contains another field; a space is missing before it")
    return value


def _listed(value: str) -> list[str]:
    return value.split(",") if value else []


def _checked_names(what: str, value: str, if_empty: str = "") -> tuple[str, ...]:
    if not value and if_empty:
        raise ValueError(if_empty)
    try:  # Names of tools and agents have the same form.
        return tuple(names.checked_tool(name) for name in _listed(value))
    except names.InvalidName:
        raise ValueError(f"expected names of {what}") from None


_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("key_id", _matching(_NAME, "1 to 64 of A-Z, a-z, 0-9, _, . and -")),
    "rights": ("rights", _rights),
    "user": ("user_id", _user),
    "role": ("role", _matching(_ROLE, "1 to 32 of a-z, 0-9 and _, the first a letter")),
    "max_runs": ("max_runs", _matching(_NUMBER, "a whole number from 1 on", int)),
    "tools": ("tools", partial(_checked_names, "tools, separated by commas; empty: none")),
    "agents": ("agents", partial(_checked_names, "agents, separated by commas", if_empty=_NO_AGENT)),
    "max_tokens_per_day": ("max_tokens_per_day", _matching(_TOKENS, "a whole number from 1 on", int)),
    "max_cost_usd_per_day": ("max_cost_usd_per_day", _matching(_MONEY, _DOLLARS, float)),
}
"""Field of a line -> attribute of Caller, and how its text is read. They raise ValueError with the reason."""
