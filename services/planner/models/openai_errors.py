"""Classifies the errors of OpenAI-compatible servers. Their text is searched, and never copied (see `errors`)."""

from collections.abc import Mapping
from typing import Any

import orjson

from services.planner.models import errors
from services.planner.models.errors import ModelFailed

MAX_SEARCHED_CHARACTERS = 2000
_TOO_LONG_CODES = frozenset({"context_length_exceeded", "string_above_max_length", "exceed_context_size_error"})
_TOO_LONG_TEXTS = (
    "maximum context length",
    "maximum context limit",
    "context length exceeded",
    "context window",
    "exceed context limit",
    "exceeds the available context size",
    "exceeds the maximum number of tokens",
    "input tokens exceed",
    "prompt is too long",
    "too many tokens in the prompt",
    "reduce the length of the messages",
)
_REFUSED_CODES = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
_REFUSED_TEXTS = ("content management policy", "content policy", "content_policy", "safety system", "moderation")
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})


def failure_of(
    model: str, status: int | None, headers: Mapping[str, str], error: Mapping[str, Any], *, after_output: bool = False
) -> ModelFailed:
    """Return the failure of an error body, or of an error inside a stream (then `status` may be None)."""
    code = _identifier(error.get("code")) or _identifier(error.get("type"))
    status = status if status is not None else _status(error)
    text = str(error.get("message", ""))[:MAX_SEARCHED_CHARACTERS].lower()
    label = ", ".join(str(part) for part in (status, code) if part) or "an error in its stream"
    kind = _kind(status, code, text)
    return errors.failed(kind, model, label, status=status, headers=headers, after_output=after_output)


def error_in(body: bytes) -> dict[str, Any]:
    """Return the error of a body: an object with `message` and, maybe, `code` and `type`."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"message": body[: MAX_SEARCHED_CHARACTERS * 4].decode(errors="replace")}
    if isinstance(given, list) and given:
        given = given[0]
    error = given.get("error", given) if isinstance(given, dict) else given
    if isinstance(error, dict):
        return {"message": error.get("detail", ""), **error}
    return {"message": str(error)}


def _kind(status: int | None, code: str, text: str) -> str | None:
    """Return the name of an exception of OpenAI's protocol that `errors` knows; None: the status decides."""
    refused = status in {None, 400, 413, 422, 500}
    if refused and (code in _TOO_LONG_CODES or any(phrase in text for phrase in _TOO_LONG_TEXTS)):
        return "ContextWindowExceededError"
    if refused and (code in _REFUSED_CODES or any(phrase in text for phrase in _REFUSED_TEXTS)):
        return "ContentPolicyViolationError"
    return "PermissionDeniedError" if code in _QUOTA_CODES else None


def _identifier(value: Any) -> str:
    return value if isinstance(value, str) and errors.is_identifier(value) else ""


def _status(error: Mapping[str, Any]) -> int | None:
    for name in ("status", "status_code", "code"):
        value = error.get(name)
        if isinstance(value, int | str) and str(value).isdecimal() and 400 <= int(value) <= 599:  # noqa: PLR2004, HTTP's
            return int(value)
    return None
