"""What can go wrong with a model. A provider's own text never gets in here: it can hold prompts, keys, tracebacks and image bytes.

The names below are those of LiteLLM's exceptions, so that this module needs no import of it (`model.py` alone has one).
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from contracts.faults import Code, Fault


class ModelFailed(Exception):
    """The model gave no usable reply.

    Attributes:
        fault: for people and programs; `retryable` says whether the same request may succeed later.
        retry_after_s: how long the provider asked to wait, in seconds.
        after_output: whether text or reasoning had already been passed on, so that nobody may silently ask again.
        status: the provider's HTTP status, where there was one.
        elsewhere: whether another model may well answer the same request.
    """

    def __init__(
        self,
        code: Code,
        reason: str,
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,
        after_output: bool = False,
        status: int | None = None,
        elsewhere: bool = True,
    ) -> None:
        super().__init__(reason)
        self.fault = Fault(code=code, reason=reason, retryable=retryable)
        self.retry_after_s = retry_after_s
        self.after_output = after_output
        self.status = status
        self.elsewhere = elsewhere


_REFUSING = 400
_BUSY = frozenset({408, 409, 425, 429})
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_.-]{1,50}", re.IGNORECASE)


def from_provider(error: BaseException, model: str, *, after_output: bool = False) -> ModelFailed:
    """Say what an exception of LiteLLM means, in our words (ACTIONS 4: what is retried, what goes to a fallback, what ends the run)."""
    error = _innermost(error)
    names = {kind.__name__ for kind in type(error).__mro__}
    status = _status(error)
    label = _label(error, status)
    if names & {"ContextWindowExceededError"}:
        return _refusal("context_too_long", f"the conversation is too long for {model} ({label})", after_output, status)
    if names & {"ContentPolicyViolationError"}:
        return _refusal("model_refused", f"the provider of {model} refused the content ({label})", after_output, status)
    if names & {"AuthenticationError", "PermissionDeniedError"} or status in {401, 403}:
        reason = f"the provider did not accept the credentials for {model} ({label}); check its API key"
        return ModelFailed("model_failed", reason, after_output=after_output, status=status)
    if names & {"NotFoundError"} or status == 404:  # noqa: PLR2004, HTTP statuses are their own names
        return ModelFailed("model_failed", f"the provider knows no model {model} ({label})", after_output=after_output, status=status)
    if names & {"RateLimitError"} or status == 429:  # noqa: PLR2004
        reason = f"the provider of {model} is rate-limiting ({label})"
        wait = retry_after(_headers(error))
        return ModelFailed("model_rate_limited", reason, retryable=True, retry_after_s=wait, after_output=after_output, status=status)
    if names & {"Timeout", "TimeoutError", "APITimeoutError"}:
        return ModelFailed(
            "model_failed", f"{model} did not answer in time ({label})", retryable=True, after_output=after_output, status=status
        )
    if names & {"BadRequestError"} or (status is not None and _REFUSING <= status < 500 and status not in _BUSY):  # noqa: PLR2004
        return _refusal("model_refused", f"the provider of {model} refused the request as invalid ({label})", after_output, status)
    wait = retry_after(_headers(error))
    reason = f"the connection to {model} broke in mid-reply ({label})" if after_output else f"{model} failed ({label})"
    return ModelFailed("model_failed", reason, retryable=True, retry_after_s=wait, after_output=after_output, status=status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a provider asks to wait: `retry-after-ms`, else `retry-after` in seconds or as a date; None where it does not say."""
    milliseconds = headers.get("retry-after-ms", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time()) if value else None
    except (ValueError, OverflowError):
        return None


def _refusal(code: Code, reason: str, after_output: bool, status: int | None) -> ModelFailed:  # noqa: FBT001, private
    return ModelFailed(code, reason, after_output=after_output, status=status, elsewhere=False)


def _innermost(error: BaseException) -> BaseException:
    """A stream that breaks is reported as an error about an error; the first one knows the status and the headers."""
    seen = 0
    while (inner := getattr(error, "original_exception", None)) is not None and isinstance(inner, BaseException) and seen < 5:  # noqa: PLR2004
        error, seen = inner, seen + 1
    return error


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return int(status) if isinstance(status, int | str) and str(status).isdigit() else None


def _label(error: BaseException, status: int | None) -> str:
    """What of a provider's error may be shown: its class, its status and its machine-readable code."""
    parts = [type(error).__name__] + ([str(status)] if status else [])
    for name in ("code", "type"):
        value = getattr(error, name, None)
        if isinstance(value, str) and _IDENTIFIER.fullmatch(value) and not value.startswith("sk-"):
            parts.append(value)
            break
    return ", ".join(parts)


def _headers(error: BaseException) -> dict[str, str]:
    found: dict[str, str] = {}
    for holder in (getattr(error, "response", None), error):
        headers: Any = getattr(holder, "headers", None) or getattr(holder, "litellm_response_headers", None) or {}
        if hasattr(headers, "items"):
            found |= {str(name).lower(): str(value) for name, value in headers.items()}
    return found
