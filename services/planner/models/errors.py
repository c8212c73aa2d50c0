"""The failures of models: what each means, and the sentence that says it.

`openai_reply` finds the meaning of what a provider reports, `failure_of` that of the exceptions of LiteLLM and of its
HTTP clients, without importing them. The text of a provider's error is searched and never copied: it can hold prompts,
keys and image bytes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from contracts.wire.faults import Code, Fault
from services.planner.models.types import ending_of


class ModelFailed(Exception):
    """The model gave no usable reply.

    Attributes:
        fault: code and reason; `retryable`: the same request may succeed later.
        retry_after_s: the pause that the provider asks for, in seconds.
        after_output: whether text or reasoning was passed on already, so that a retry needs a record in the log.
        status: the provider's HTTP status, if any.
        elsewhere: whether another model may answer the same request.
        calls: requests that were sent until this failure.
        refusal: what the model says in its refusal to answer.
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
        self.refusal = ""


MAX_SEARCHED_CHARACTERS = 2000
"""Characters of an error's text that are searched: the text can hold a whole prompt."""
MAX_BEGINNING_BYTES = 1024
"""Kept of what a server sends instead of a completion."""
MAX_PAGE_CHARACTERS = 60
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_.-]{1,50}", re.IGNORECASE)
_CONTENT_TYPE = re.compile(r"[a-z0-9.+-]{1,50}/[a-z0-9.+-]{1,50}", re.IGNORECASE)
_HTML = "text/html"
_FIELD = re.compile(r'"(\w{1,50})"\s*:')
MAX_FIELDS_SHOWN = 5
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
NO_COMPLETION = Meaning("model_failed", "the server of {model} sent {label} instead of a completion", retryable=True)
PAGE = Meaning(
    "model_failed",
    "the server of {model} sent {label} instead of a completion: check its address"
    " (RUNWIRE_MODEL_SERVERS, else RUNWIRE_MODEL_API_BASE)",
    retryable=True,
)
REASONING_ALONE = Meaning(
    "model_failed",
    "{model} gave reasoning and no reply: its server may have taken the reply for reasoning",
    retryable=True,
)
REFUSED = Meaning("model_refused", "{model} refused to answer", elsewhere=False)
REPETITIVE = Meaning("model_failed", "{model} said the same over and over", retryable=True)


def _any_of(*wordings: str) -> re.Pattern[str]:
    return re.compile("|".join(wordings), re.DOTALL)


_MORE = (
    r"(?:exceed|overflow|too (?:long|large|many|big)|(?:longer|larger|greater|more|less|fewer) than|max(?:imum)?\b"
    r"|only\b|limit|>|<)"
)
_CONTEXT = r"(?:(?:context|sequence|seq)[ -]?(?:length|len|window|size|limit)|model[ -]?len(?:gth)?)\b"
_SAID = r"\b(?:prompts?|inputs?|conversation|messages|history)\b"
_SAYS_TOO_LONG = _any_of(
    # OpenAI, Azure, vLLM, SGLang, llama.cpp, LM Studio, Ollama, Mistral, Anthropic, OpenRouter, MiniMax, NVIDIA
    rf"{_CONTEXT}.{{0,120}}{_MORE}",
    rf"{_MORE}.{{0,60}}{_CONTEXT}",
    # xAI, Poolside, Zhipu, Copilot, Doubao, TensorRT-LLM, Baidu
    r"max(?:imum)?\b.{0,20}(?:prompt|input|message)[ -]?(?:length|len|tokens?|characters)\b",
    r"range of input length",  # DashScope
    r"reduce the length of (?:the |your )?(?:messages|prompt|input|conversation)",  # Groq, Cerebras
    r"max tokens must be at least 1, got -",  # vLLM, where the prompt leaves nothing
    r"(?:prompt|输入).{0,20}过长|超(?:过|出).{0,20}长度|长度.{0,10}超(?:过|出)",
    r"max(?:imum)? context\b",
)
"""Wordings that mean a conversation that is too long, whatever else is named. `_` reads as a blank."""
_LIKELY_TOO_LONG = _any_of(
    # Bedrock, Fireworks, Anthropic, Zhipu
    rf"{_SAID}.{{0,60}}(?:too (?:long|large|big)|exceeds?\b|(?:longer|greater) than)",
    # Gemini, Copilot, Cohere, watsonx, and TGI behind Together
    r"\btokens?\b.{0,80}(?:exceed|too (?:long|large)|(?:more|larger|greater) than|must be <|only \d)",
    r"(?:too many|(?:less|fewer) than \d+|exceed\w*.{0,40})(?: \w+)? tokens?\b",  # TGI, Moonshot
)
"""Wordings that mean it where no other part of a request is named."""
_OTHER_PARTS = re.compile(r"\b(?:image|audio|video|file|document|pdf|attachment|tool|function|parameter)s?\b")
_OF_OUTPUT = re.compile(
    r"\bmax(?:imum)? (?:(?:new|output|completion) )?tokens?\b|\b(?:output|completion|generated) tokens?(?: limit)?\b"
)
_OF_RATE = re.compile(r"\brate[ -]?limit|per (?:min(?:ute)?|day|hour)\b|\b[rt]p[md]\b|\bquota")
_TOO_LONG_CODES = frozenset(
    {
        "string_above_max_length",  # OpenAI
        "tokens_limit_reached",  # GitHub
        "prompt_too_long",
        "input_too_long",
        "request_too_large",  # Anthropic
        "1261",  # Zhipu
        "3051",  # Mistral
        "336007",  # Baidu
    }
)

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


def is_too_long(code: str, text: str) -> bool:
    """Whether an error means that the conversation is too long: by its code, or by what its text says."""
    text = text[:MAX_SEARCHED_CHARACTERS].lower().replace("_", " ")
    if code.lower() in _TOO_LONG_CODES:
        return True
    if _OF_RATE.search(text):
        return False
    is_likely = not _OTHER_PARTS.search(text) and _LIKELY_TOO_LONG.search(_OF_OUTPUT.sub(" ", text))
    return bool(_SAYS_TOO_LONG.search(text) or is_likely)


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


def no_reply(
    model: str,
    finish_reason: str | None,
    content_type: str = "",
    beginning: bytes = b"",
    *,
    reasoning: str = "",
    refusal: str = "",
) -> ModelFailed:
    """Return the failure of a reply without text and calls.

    `beginning`: the first bytes of what came instead of a completion, of type `content_type`; empty if nothing came.
    """
    if refusal.strip():
        refused = failure(REFUSED, model)
        refused.refusal = refusal
        return refused
    ending = ending_of(finish_reason, is_ended=True)
    if ending == "filtered":
        return failure(REPLY_FILTERED, model)
    if ending == "limit":
        return failure(REPLY_CUT, model)
    if not beginning.strip():
        return failure(REASONING_ALONE if reasoning.strip() else REPLY_EMPTY, model)
    kind = content_type.partition(";")[0].strip().lower()
    if not _CONTENT_TYPE.fullmatch(kind):
        return failure(NO_COMPLETION, model, "something else")
    # The first words of a page are shown. A page is not the provider's error: it repeats no request.
    words = " ".join(_NOT_SHOWN.sub(" ", beginning.decode(errors="replace")).split())[:MAX_PAGE_CHARACTERS].rstrip()
    if kind == _HTML:
        return failure(PAGE, model, f"{kind} ({words!r})" if words else kind)
    fields = [name for name in _FIELD.findall(beginning.decode(errors="replace")) if is_identifier(name)]
    shown = ", ".join(dict.fromkeys(fields[:MAX_FIELDS_SHOWN]))
    return failure(NO_COMPLETION, model, f"{kind} with the fields {shown}" if shown else kind)


def is_identifier(value: str) -> bool:
    """Whether a machine-readable code of a provider may be shown."""
    return bool(_IDENTIFIER.fullmatch(value)) and not value.startswith("sk-")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the pause that a provider asks for, in seconds, or None.

    Read from `retry-after-ms`, else from `retry-after` in seconds or as a date.
    """
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value) / per_second
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time()) if value else None
    except (ValueError, OverflowError):
        return None


_BY_EXCEPTION = {
    "ContextWindowExceededError": TOO_LONG,
    "ContentPolicyViolationError": CONTENT_REFUSED,
    "NotFoundError": MODEL_UNKNOWN,
    "RateLimitError": RATE_LIMITED,
    **dict.fromkeys(("AuthenticationError", "PermissionDeniedError"), CREDENTIALS_REFUSED),
    **dict.fromkeys(("Timeout", "TimeoutError", "APITimeoutError"), TIMED_OUT),
    **dict.fromkeys(("BadRequestError", "UnsupportedParamsError", "UnprocessableEntityError"), REQUEST_REFUSED),
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
    text, causes = str(error)[:MAX_SEARCHED_CHARACTERS], _causes(error)
    unsent = _unsent(text, causes)
    if unsent is not None:
        label = next((name for name in causes if name in _NOT_CONNECTED), "")
        variable = _KEY_VARIABLE.search(text)
        key = variable.group() if variable else "its provider's variable"
        return failure(unsent, model, label, key=key, after_output=after_output)
    status = getattr(error, "status_code", None)
    status = int(status) if isinstance(status, int | str) and str(status).isdigit() else None
    names = (kind.__name__ for kind in type(error).__mro__)
    meaning = next((_BY_EXCEPTION[name] for name in names if name in _BY_EXCEPTION), meaning_of_status(status))
    if meaning in {REQUEST_REFUSED, UNSPECIFIED} and is_too_long("", text):
        meaning = TOO_LONG
    headers: dict[str, str] = {}
    for carrier in (getattr(error, "response", None), error):
        given: Any = getattr(carrier, "headers", None) or getattr(carrier, "litellm_response_headers", None) or {}
        if hasattr(given, "items"):
            headers |= {str(name).lower(): str(value) for name, value in given.items()}
    label = _label(error, status)
    failed = failure(meaning, model, label, status=status, headers=headers, after_output=after_output)
    failed.said = text.lower()
    return failed


def _unsent(text: str, causes: list[str]) -> Meaning | None:
    """Recognise an error that no provider sent. LiteLLM reports it as a provider's, with an invented status."""
    if "LLM Provider NOT provided" in text:
        return _PROVIDER_MISSING
    if _KEY_IS_MISSING.search(text):
        return KEY_MISSING
    if "repeating the same chunk" in text:
        return REPETITIVE
    if {"UnsupportedProtocol", "InvalidURL"} & set(causes):
        return ADDRESS_INVALID
    return UNREACHABLE if _NOT_CONNECTED & set(causes) else None


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
        if isinstance(value, str) and is_identifier(value):
            parts.append(value)
            break
    return ", ".join(parts)
