"""Finds the meaning of the exceptions of LiteLLM and of its HTTP clients, without importing them.

Their text is searched, and never copied (see `errors`).
"""

import re
from typing import Any

from services.planner.models import errors
from services.planner.models.errors import Meaning, ModelFailed

_MEANINGS = {
    "ContextWindowExceededError": errors.TOO_LONG,
    "ContentPolicyViolationError": errors.CONTENT_REFUSED,
    "AuthenticationError": errors.CREDENTIALS_REFUSED,
    "PermissionDeniedError": errors.CREDENTIALS_REFUSED,
    "NotFoundError": errors.MODEL_UNKNOWN,
    "RateLimitError": errors.RATE_LIMITED,
    "Timeout": errors.TIMED_OUT,
    "TimeoutError": errors.TIMED_OUT,
    "APITimeoutError": errors.TIMED_OUT,
    "BadRequestError": errors.REQUEST_REFUSED,
    "UnsupportedParamsError": errors.REQUEST_REFUSED,
    "UnprocessableEntityError": errors.REQUEST_REFUSED,
}
"""Name of an exception's class, or of the nearest class above it -> meaning. Of others the status decides."""
_PROVIDER_MISSING = Meaning(
    "model_failed",
    "{model!r} names no provider that LiteLLM knows: write it as provider/model, for example openai/gpt-5.4-mini",
)
_NOT_CONNECTED = frozenset({"ConnectError", "ConnectTimeout"})
_KEY_IS_MISSING = re.compile(r"missing (credentials|[\w ]*api key)", re.IGNORECASE)
_KEY_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]{1,40}_API_KEY\b")
MAX_NESTED_ERRORS = 5
MAX_CAUSES = 10


def failure_of(error: BaseException, model: str, *, after_output: bool = False) -> ModelFailed:
    """Return the failure that an exception of LiteLLM means."""
    for _ in range(MAX_NESTED_ERRORS):  # LiteLLM wraps the errors of a broken stream; the innermost has the status.
        inner = getattr(error, "original_exception", None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    text, causes = str(error)[: errors.MAX_SEARCHED_CHARACTERS], _causes(error)
    unsent = _unsent(text, causes)
    if unsent is not None:
        label = next((name for name in causes if name in _NOT_CONNECTED), "")
        variable = _KEY_VARIABLE.search(text)
        key = variable.group() if variable else "its provider's variable"
        return errors.failure(unsent, model, label, key=key, after_output=after_output)
    status = getattr(error, "status_code", None)
    status = int(status) if isinstance(status, int | str) and str(status).isdigit() else None
    names = (kind.__name__ for kind in type(error).__mro__)
    meaning = next((_MEANINGS[name] for name in names if name in _MEANINGS), errors.meaning_of_status(status))
    if meaning in {errors.REQUEST_REFUSED, errors.UNSPECIFIED} and errors.is_too_long("", text):
        meaning = errors.TOO_LONG
    headers: dict[str, str] = {}
    for carrier in (getattr(error, "response", None), error):
        given: Any = getattr(carrier, "headers", None) or getattr(carrier, "litellm_response_headers", None) or {}
        if hasattr(given, "items"):
            headers |= {str(name).lower(): str(value) for name, value in given.items()}
    label = _label(error, status)
    failed = errors.failure(meaning, model, label, status=status, headers=headers, after_output=after_output)
    failed.said = text.lower()
    return failed


def _unsent(text: str, causes: list[str]) -> Meaning | None:
    """Recognise an error that no provider sent. LiteLLM reports it as a provider's, with an invented status."""
    if "LLM Provider NOT provided" in text:
        return _PROVIDER_MISSING
    if _KEY_IS_MISSING.search(text):
        return errors.KEY_MISSING
    if "repeating the same chunk" in text:
        return errors.REPETITIVE
    if {"UnsupportedProtocol", "InvalidURL"} & set(causes):
        return errors.ADDRESS_INVALID
    return errors.UNREACHABLE if _NOT_CONNECTED & set(causes) else None


def _causes(error: BaseException) -> list[str]:
    """Return the names of the error's class and of those of its causes, up to a limit."""
    found: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(found) < MAX_CAUSES:
        found.append(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    return found


def _label(error: BaseException, status: int | None) -> str:
    """Return the parts of a provider's error that may be shown: class, status and machine-readable code."""
    parts = [type(error).__name__] + ([str(status)] if status else [])
    for name in ("code", "type"):
        value = getattr(error, name, None)
        if isinstance(value, str) and errors.is_identifier(value):
            parts.append(value)
            break
    return ", ".join(parts)
