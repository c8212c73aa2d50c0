"""Classifies the failures of models. A provider's text is never copied: it can hold prompts, keys and image bytes.

The names below are those of LiteLLM's exceptions, so that this module needs no import of it (`litellm.py` alone has
one).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from contracts.faults import Code, Fault


class ModelFailed(Exception):
    """The model gave no usable reply.

    Attributes:
        fault: code and reason; `retryable`: the same request may succeed later.
        retry_after_s: the pause that the provider asks for, in seconds.
        after_output: whether text or reasoning was passed on already, so that a retry needs a record in the log.
        status: the provider's HTTP status, if any.
        elsewhere: whether another model may answer the same request.
        calls: requests that were sent until this failure.
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
        calls: int = 1,
    ) -> None:
        super().__init__(reason)
        self.fault = Fault(code=code, reason=reason, retryable=retryable)
        self.retry_after_s = retry_after_s
        self.after_output = after_output
        self.status = status
        self.elsewhere = elsewhere
        self.calls = calls


MAX_NESTED_ERRORS = 5
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_.-]{1,50}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The code and reason of a kind of provider error. `reason` has the fields `{model}` and `{label}`."""

    names: frozenset[str]
    statuses: frozenset[int]
    code: Code
    reason: str
    retryable: bool = False
    elsewhere: bool = True


_MEANINGS = (
    _Meaning(
        frozenset({"ContextWindowExceededError"}),
        frozenset({413}),
        "context_too_long",
        "the conversation is too long for {model} ({label})",
        elsewhere=False,
    ),
    _Meaning(
        frozenset({"ContentPolicyViolationError"}),
        frozenset(),
        "model_refused",
        "the provider of {model} refused the content ({label})",
        elsewhere=False,
    ),
    _Meaning(
        frozenset({"AuthenticationError", "PermissionDeniedError"}),
        frozenset({401, 402, 403}),
        "model_failed",
        "the provider did not accept the credentials for {model} ({label}): check its API key and account",
    ),
    _Meaning(
        frozenset({"NotFoundError"}),
        frozenset({404}),
        "model_failed",
        "the provider knows no model {model} ({label}): check its name,"
        " and RUNWIRE_MODEL_SERVERS or RUNWIRE_MODEL_API_BASE where one is set",
    ),
    _Meaning(
        frozenset({"RateLimitError"}),
        frozenset({429}),
        "model_rate_limited",
        "the provider of {model} limits its rate ({label})",
        retryable=True,
    ),
    _Meaning(
        frozenset({"Timeout", "TimeoutError", "APITimeoutError"}),
        frozenset({408, 504}),
        "model_failed",
        "{model} did not answer in time ({label})",
        retryable=True,
    ),
    _Meaning(
        frozenset({"BadRequestError", "UnsupportedParamsError", "UnprocessableEntityError"}),
        frozenset({400, 405, 406, 410, 415, 422}),
        "model_refused",
        "the provider of {model} refused the request as invalid ({label})",
        elsewhere=False,
    ),
)
"""The first entry whose name or status matches applies. An error without a match may be temporary."""
_PASSING = _Meaning(frozenset(), frozenset(), "model_failed", "{model} failed ({label})", retryable=True)

# Errors of LiteLLM and its clients themselves, mostly before a request was sent. They report them as errors of the
# provider, with an invented status.
_NO_PROVIDER = _Meaning(
    frozenset(),
    frozenset(),
    "model_failed",
    "{model!r} names no provider that LiteLLM knows: write it as provider/model, for example openai/gpt-5.4-mini",
)
_NO_KEY = _Meaning(
    frozenset(), frozenset(), "model_failed", "there is no API key for {model}: set {key} where the planner runs"
)
_NO_URL = _Meaning(
    frozenset(),
    frozenset(),
    "model_failed",
    "the address of {model} is no http URL: see RUNWIRE_MODEL_SERVERS, else RUNWIRE_MODEL_API_BASE",
)
_LOOPING = _Meaning(frozenset(), frozenset(), "model_failed", "{model} said the same over and over", retryable=True)
_UNREACHABLE = _Meaning(
    frozenset({"ConnectError", "ConnectTimeout"}),
    frozenset(),
    "model_failed",
    "{model} cannot be reached ({label}): see the network, or its address"
    " (RUNWIRE_MODEL_SERVERS, else RUNWIRE_MODEL_API_BASE)",
    retryable=True,
)
_KEY_IS_MISSING = re.compile(r"missing (credentials|[\w ]*api key)", re.IGNORECASE)
_KEY_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]{1,40}_API_KEY\b")
MAX_CAUSES = 10
MAX_SEARCHED_CHARACTERS = 2000
"""Characters of an error's text that are searched: the text can hold a whole prompt."""


def from_provider(error: BaseException, model: str, *, after_output: bool = False) -> ModelFailed:
    """Classify an exception of LiteLLM: retryable or not, for a fallback or not, with a code and reason."""
    error = _innermost(error)
    causes = [type(cause).__name__ for cause in _chain(error)]
    text = str(error)[:MAX_SEARCHED_CHARACTERS]
    early = _of_litellm(text, causes)
    status = None if early else _status(error)
    meaning = early or _meaning_of({kind.__name__ for kind in type(error).__mro__}, status)
    label = next(name for name in causes if name in meaning.names) if early is _UNREACHABLE else _label(error, status)
    key = _KEY_VARIABLE.search(text) if early is _NO_KEY else None
    return _failure(
        meaning, model, label, status, _headers(error), key=key.group() if key else "", after_output=after_output
    )


def failed(
    kind: str | None,
    model: str,
    label: str,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    after_output: bool = False,
) -> ModelFailed:
    """Classify an error by the name of its kind, else by its status. `label` and names of `headers` may be shown."""
    meaning = _meaning_of({kind} if kind else set(), status)
    return _failure(meaning, model, label, status, headers or {}, after_output=after_output)


def unreachable(model: str, label: str) -> ModelFailed:
    """Return the failure of a model whose address does not answer."""
    return _failure(_UNREACHABLE, model, label, None, {})


def no_url(model: str) -> ModelFailed:
    """Say that the model's address is none."""
    return _failure(_NO_URL, model, "", None, {})


def is_identifier(value: str) -> bool:
    """Whether a machine-readable code of a provider may be shown."""
    return bool(_IDENTIFIER.fullmatch(value)) and not value.startswith("sk-")


def _failure(
    meaning: _Meaning,
    model: str,
    label: str,
    status: int | None,
    headers: Mapping[str, str],
    *,
    key: str = "",
    after_output: bool = False,
) -> ModelFailed:
    reason = meaning.reason.format(model=model, label=label, key=key or "its provider's variable")
    pause = retry_after(headers) if meaning.retryable else None
    if pause:
        reason += f"; it asks for a pause of {pause:.0f} s"
    return ModelFailed(
        meaning.code,
        f"{reason}, after part of the reply" if after_output else reason,
        retryable=meaning.retryable,
        retry_after_s=pause,
        after_output=after_output,
        status=status,
        elsewhere=meaning.elsewhere,
    )


def _meaning_of(names: set[str], status: int | None) -> _Meaning:
    by_name = (meaning for meaning in _MEANINGS if meaning.names & names)
    by_status = (meaning for meaning in _MEANINGS if status in meaning.statuses)
    return next(by_name, None) or next(by_status, None) or _PASSING


def _of_litellm(text: str, causes: list[str]) -> _Meaning | None:
    """Recognise an error that no provider sent. The text is only searched, never copied."""
    if "LLM Provider NOT provided" in text:
        return _NO_PROVIDER
    if _KEY_IS_MISSING.search(text):
        return _NO_KEY
    if "repeating the same chunk" in text:
        return _LOOPING
    if {"UnsupportedProtocol", "InvalidURL"} & set(causes):
        return _NO_URL
    return _UNREACHABLE if _UNREACHABLE.names & set(causes) else None


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, up to a limit."""
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(found) < MAX_CAUSES:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the pause that a provider asks for, in seconds, or None.

    Read from `retry-after-ms`, else from `retry-after` in seconds or as a date.
    """
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


def _innermost(error: BaseException) -> BaseException:
    """Return the innermost error, which has status and headers: LiteLLM wraps the errors of a broken stream."""
    for _ in range(MAX_NESTED_ERRORS):
        inner = getattr(error, "original_exception", None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return int(status) if isinstance(status, int | str) and str(status).isdigit() else None


def _label(error: BaseException, status: int | None) -> str:
    """Return the parts of a provider's error that may be shown: class, status and machine-readable code."""
    parts = [type(error).__name__] + ([str(status)] if status else [])
    for name in ("code", "type"):
        value = getattr(error, name, None)
        if isinstance(value, str) and is_identifier(value):
            parts.append(value)
            break
    return ", ".join(parts)


def _headers(error: BaseException) -> dict[str, str]:
    found: dict[str, str] = {}
    for carrier in (getattr(error, "response", None), error):
        headers: Any = getattr(carrier, "headers", None) or getattr(carrier, "litellm_response_headers", None) or {}
        if hasattr(headers, "items"):
            found |= {str(name).lower(): str(value) for name, value in headers.items()}
    return found
