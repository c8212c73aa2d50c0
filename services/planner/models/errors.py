"""The failures of models: what each means, and the sentence that says it.

`direct.openai_errors` and `litellm.errors` find the meaning of what a provider or a library reports. The text of a
provider's error is never copied: it can hold prompts, keys and image bytes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time

from contracts.wire.faults import Code, Fault
from services.planner.models.finish_reasons import ending_of


class ModelFailed(Exception):
    """The model gave no usable reply.

    Attributes:
        fault: code and reason; `retryable`: the same request may succeed later.
        retry_after_s: the pause that the provider asks for, in seconds.
        after_output: whether text or reasoning was passed on already, so that a retry needs a record in the log.
        status: the provider's HTTP status, if any.
        elsewhere: whether another model may answer the same request.
        calls: requests that were sent until this failure.
        said: the provider's own words in lower case, for `refusals` alone, which removes them.
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
        self.said = ""


MAX_BEGINNING_BYTES = 1024
"""Kept of what a server sends instead of a completion."""
MAX_PAGE_CHARACTERS = 60
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_.-]{1,50}", re.IGNORECASE)
_CONTENT_TYPE = re.compile(r"[a-z0-9.+-]{1,50}/[a-z0-9.+-]{1,50}", re.IGNORECASE)
_HTML = "text/html"
_NOT_SHOWN = re.compile(r"<(script|style)\b.*?(</\1>|$)|<[^>]*(>|$)|\s+", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an error means. The fields of `reason` are `{model}`, `{label}` and `{key}`; others: see ModelFailed."""

    code: Code
    reason: str
    retryable: bool = False
    elsewhere: bool = True


TOO_LONG = Meaning("context_too_long", "the conversation is too long for {model} ({label})", elsewhere=False)
CONTENT_REFUSED = Meaning("model_refused", "the provider of {model} refused the content ({label})", elsewhere=False)
CREDENTIALS_REFUSED = Meaning(
    "model_failed", "the provider did not accept the credentials for {model} ({label}): check its API key and account"
)
MODEL_UNKNOWN = Meaning(
    "model_failed",
    "the provider knows no model {model} ({label}): check its name,"
    " and RUNWIRE_MODEL_SERVERS or RUNWIRE_MODEL_API_BASE where one is set",
)
RATE_LIMITED = Meaning("model_rate_limited", "the provider of {model} limits its rate ({label})", retryable=True)
TIMED_OUT = Meaning("model_failed", "{model} did not answer in time ({label})", retryable=True)
REQUEST_REFUSED = Meaning(
    "model_refused", "the provider of {model} refused the request as invalid ({label})", elsewhere=False
)
UNSPECIFIED = Meaning("model_failed", "{model} failed ({label})", retryable=True)
"""Any other error: it may be temporary."""
KEY_MISSING = Meaning("model_failed", "there is no API key for {model}: set {key} where the planner runs")
KEY_INVALID = Meaning(
    "model_failed", "{key} holds no API key for {model}: give the key alone, without quotes, blanks or `Bearer`"
)
ADDRESS_INVALID = Meaning(
    "model_failed", "the address of {model} is no http URL: see RUNWIRE_MODEL_SERVERS, else RUNWIRE_MODEL_API_BASE"
)
UNREACHABLE = Meaning(
    "model_failed",
    "{model} cannot be reached ({label}): see the network, or its address"
    " (RUNWIRE_MODEL_SERVERS, else RUNWIRE_MODEL_API_BASE)",
    retryable=True,
)
REDIRECTED = Meaning(
    "model_failed", "the provider of {model} redirects requests ({label}), which is not followed: name its real address"
)
REPLY_FILTERED = Meaning("model_refused", "the provider of {model} filtered the reply", elsewhere=False)
REPLY_CUT = Meaning("model_failed", "{model} used up its output limit before it said anything")
REPLY_EMPTY = Meaning("model_failed", "{model} gave an empty reply", retryable=True)
NO_COMPLETION = Meaning(
    "model_failed",
    "the server of {model} sent {label} instead of a completion: check its address"
    " (RUNWIRE_MODEL_SERVERS, else RUNWIRE_MODEL_API_BASE)",
    retryable=True,
)
REPETITIVE = Meaning("model_failed", "{model} said the same over and over", retryable=True)

_BY_STATUS = {
    413: TOO_LONG,
    404: MODEL_UNKNOWN,
    429: RATE_LIMITED,
    **dict.fromkeys((401, 402, 403), CREDENTIALS_REFUSED),
    **dict.fromkeys((408, 504), TIMED_OUT),
    **dict.fromkeys((400, 405, 406, 410, 415, 422), REQUEST_REFUSED),
}


def meaning_of_status(status: int | None) -> Meaning:
    """Return what an HTTP status alone means; None: there is none."""
    return UNSPECIFIED if status is None else _BY_STATUS.get(status, UNSPECIFIED)


def failure(
    meaning: Meaning,
    model: str,
    label: str = "",
    *,
    key: str = "",
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    after_output: bool = False,
) -> ModelFailed:
    """Return the failure of a model. `label` and `key` are shown; `headers` have names in lower case."""
    reason = meaning.reason.format(model=model, label=label, key=key)
    pause = retry_after(headers or {}) if meaning.retryable else None
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


def no_reply(model: str, finish_reason: str | None, content_type: str = "", beginning: bytes = b"") -> ModelFailed:
    """Return the failure of a reply without text and calls.

    `beginning`: the first bytes of what came instead of a completion, of type `content_type`; empty if nothing came.
    """
    ending = ending_of(finish_reason, is_ended=True)
    if ending == "filtered":
        return failure(REPLY_FILTERED, model)
    if ending == "limit":
        return failure(REPLY_CUT, model)
    if not beginning.strip():
        return failure(REPLY_EMPTY, model)
    kind = content_type.partition(";")[0].strip().lower()
    if not _CONTENT_TYPE.fullmatch(kind):
        return failure(NO_COMPLETION, model, "something else")
    # The first words of a page are shown. A page is not the provider's error: it repeats no request.
    words = " ".join(_NOT_SHOWN.sub(" ", beginning.decode(errors="replace")).split())[:MAX_PAGE_CHARACTERS].rstrip()
    return failure(NO_COMPLETION, model, f"{kind} ({words!r})" if kind == _HTML and words else kind)


def is_identifier(value: str) -> bool:
    """Whether a machine-readable code of a provider may be shown."""
    return bool(_IDENTIFIER.fullmatch(value)) and not value.startswith("sk-")


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
