"""Classifies the errors of OpenAI-compatible servers. Their text is searched, and never copied (see `errors`)."""

from collections.abc import Mapping
from typing import Any

import orjson

from services.planner.models import errors
from services.planner.models.errors import Meaning, ModelFailed

_REFUSED_CODES = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
_REFUSED_TEXTS = ("content management policy", "content policy", "content_policy", "safety system", "moderation")
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_UNCLEAR_STATUSES = frozenset({None, 400, 413, 422, 500})
_WRAPPERS = ("error", "errors", "base_resp")
"""Fields around an error: of most servers; of Cloudflare; of MiniMax."""
_NAMES = {
    "message": ("message", "error_msg", "errorMessage", "error_message", "status_msg", "msg", "detail"),
    "code": ("code", "error_code", "errorCode", "status_code"),
}
"""What is called how: by most servers; by Baidu; by gateways; by MiniMax; by Zhipu; by FastAPI."""
_GOOD_CODES = (None, 0, 200, "0", "200")
_FIRST_ERROR_STATUS, _LAST_ERROR_STATUS = 400, 599


def failure_of(
    model: str, status: int | None, headers: Mapping[str, str], error: Mapping[str, Any], *, after_output: bool = False
) -> ModelFailed:
    """Return the failure of an error body, or of an error inside a stream (then `status` may be None)."""
    code = _identifier(error.get("code")) or _identifier(error.get("type"))
    for name in ("status", "status_code", "code"):
        value = error.get(name)
        number = int(value) if isinstance(value, int | str) and str(value).isdecimal() else 0
        if status is None and _FIRST_ERROR_STATUS <= number <= _LAST_ERROR_STATUS:
            status = number
    text = str(error.get("message", ""))[: errors.MAX_SEARCHED_CHARACTERS].lower()
    label = ", ".join(str(part) for part in (status, code) if part) or "an error in its stream"
    worded = f"{error.get('code')} {error.get('type')}: {text}"
    meaning = _meaning(status, code, text, is_too_long=errors.is_too_long(str(error.get("code")), worded))
    failed = errors.failure(meaning, model, label, status=status, headers=headers, after_output=after_output)
    failed.said = f"{text} {error.get('param') or ''}".lower()
    return failed


def error_in(body: bytes) -> dict[str, Any]:
    """Return the error of a body: an object with `message` and, maybe, `code` and `type`."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"message": body[: errors.MAX_SEARCHED_CHARACTERS * 4].decode(errors="replace")}
    return _error_in(given[0] if isinstance(given, list) and given else given)


def error_of(chunk: dict[str, Any], *, is_chunk: bool, event: bytes) -> tuple[dict[str, Any] | None, bool]:
    """Return the error that a server sent with status 200, or None, and whether it is certain.

    `is_chunk`: it has a choice. `event`: the name of the event. A message without a code may tell the progress.
    """
    found = _error_in(chunk)
    if chunk.get("error") or event == b"error" or chunk.get("object") == "error":
        return found, True
    is_error = not is_chunk and isinstance(found["message"], str | list) and bool(found["message"])
    return found if is_error else None, is_error and found.get("code") not in _GOOD_CODES


def _error_in(given: Any) -> dict[str, Any]:
    """Return the error of a value, whatever its fields are called."""
    if not isinstance(given, dict):
        return {"message": str(given)}
    for name in _WRAPPERS:
        inner = given.get(name)
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(inner, dict):
            given = {**given, **inner}
        elif inner:
            given = {**given, "message": str(inner)}
    found = {"message": ""} | {
        name: given[name] for name in ("type", "status", "status_code", "param") if name in given
    }
    for kind, names in _NAMES.items():
        found |= next(({kind: given[name]} for name in names if given.get(name)), {})
    return found


def _meaning(status: int | None, code: str, text: str, *, is_too_long: bool) -> Meaning:
    """Read code and text where the status leaves the meaning open."""
    if code in _QUOTA_CODES:
        return errors.CREDENTIALS_REFUSED
    if status in _UNCLEAR_STATUSES:
        if is_too_long:
            return errors.TOO_LONG
        if code in _REFUSED_CODES or any(phrase in text for phrase in _REFUSED_TEXTS):
            return errors.CONTENT_REFUSED
    return errors.meaning_of_status(status)


def _identifier(value: Any) -> str:
    return value if isinstance(value, str) and errors.is_identifier(value) else ""
