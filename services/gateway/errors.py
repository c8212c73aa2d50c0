"""Errors of the gateway. Each answer with an error is `application/problem+json` (RFC 9457).

`code` is for programs; `detail` is for people. docs/rules/problems.md is made of the docstrings.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, ClassVar, get_args

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from contracts.wire.faults import Code, Fault

MEDIA_TYPE = "application/problem+json"
_MAX_NAME_CHARACTERS = 64
_TITLES = {413: "Content Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}
"""Python before 3.13 has other ones than RFC 9110."""


_LAST = {"Connection": "close"}


class StartRefused(Exception):
    """The gateway must not start with these settings: one sentence says why."""


class FieldError(BaseModel):
    """One thing that is wrong with the input."""

    field: str = Field(description="its path, as `limits.max_steps`; empty for the body as a whole")
    message: str


class ProblemBody(BaseModel):
    """Every error of the gateway, with the media type `application/problem+json`."""

    type: str = Field(description="`urn:runwire:problem:<code>`")
    title: str
    status: int
    code: str
    detail: str
    errors: list[FieldError] = Field(default_factory=list)
    run_id: str | None = Field(
        default=None, description="the run that the request started, where it was accepted all the same"
    )


class Problem(Exception):
    """Something went wrong in the gateway: its log says what."""

    status: int = 500
    code: str = "internal"
    default: ClassVar[str] = "Something went wrong here; the log of the gateway says what."
    sent: ClassVar[Mapping[str, str]] = {}
    """Headers of each answer of this kind."""

    def __init__(self, detail: str | None = None, *, headers: Mapping[str, str] | None = None, **extra: Any) -> None:
        """`extra` becomes part of the body."""
        super().__init__(detail or self.default)
        self.detail = detail or self.default
        self.headers = {**self.sent, **(headers or {})}
        self.extra = extra

    @classmethod
    def other(cls, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> "Problem":
        """Return a problem of a kind that has no class here."""
        problem = cls(detail, headers=headers)
        problem.status, problem.code = status, code
        return problem

    def response(self) -> Response:
        """Return the answer; equal problems give equal bytes."""
        body = {
            "type": f"urn:runwire:problem:{self.code}",
            "title": _TITLES.get(self.status) or HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **self.extra,
        }
        # Not orjson: the arguments of a call that waits may hold an integer beyond 64 bits.
        return Response(to_json(body), self.status, {**self.headers, "Cache-Control": "no-store"}, MEDIA_TYPE)


class InvalidInput(Problem):
    """The input is not well-formed: `errors` names the fields. Nothing was stored."""

    status, code, default = 422, "invalid_input", "The request does not have the expected form."

    def __init__(self, field: str, message: str) -> None:
        super().__init__(errors=[{"field": field, "message": message}])

    @classmethod
    def of_fields(cls, fields: Iterable[tuple[str, str]]) -> "InvalidInput":
        """Name several fields, each with its message."""
        problem = cls("", "")
        problem.extra = {"errors": [{"field": field, "message": message} for field, message in fields]}
        return problem

    @classmethod
    def unknown(cls, names: Iterable[str]) -> "InvalidInput":
        """Refuse fields that do not exist."""
        return cls.of_fields((_shown(name), _in_words("extra_forbidden", "")) for name in names)

    @classmethod
    def of(cls, error: ValidationError | RequestValidationError, prefix_length: int = 0) -> "InvalidInput":
        """Translate pydantic's error, without the values themselves. `prefix_length`: of each path, not shown."""
        return cls.of_fields(
            (".".join(map(_shown, each["loc"][prefix_length:])), _in_words(each["type"], each["msg"]))
            for each in error.errors()
        )


class ImageInvalid(Problem):
    """An image is damaged, or of another type than stated: `errors` names it. `reason` holds nothing of the image."""

    status, code = 422, "image_invalid"

    def __init__(self, number: int, reason: str) -> None:
        super().__init__("An image cannot be taken.", errors=[{"field": f"images.{number}", "message": reason}])


class ImageTooLarge(ImageInvalid):
    """An image has too many bytes or pixels: make it smaller."""

    code = "image_too_large"


class VisionUnsupported(Problem):
    """None of the models that would answer takes images: choose another one, or leave the images out."""

    status, code = 422, "vision_unsupported"

    def __init__(self, models: list[str]) -> None:
        super().__init__(
            f"{' and '.join(models)} cannot see images. Name another `model` or `agent`, or leave the images out. If "
            "it does see them, declare it in RUNWIRE_MODEL_VISION. With `vision: lenient` the run goes on without them."
        )


class BodyTooLarge(Problem):
    """The body, or the request made from it, exceeds a limit, which `detail` names."""

    status, code = 413, "body_too_large"
    sent = _LAST  # The rest of the body may still arrive, so the connection cannot be used again.

    def __init__(self, limit: int, what: str = "The body") -> None:
        super().__init__(f"{what} must not exceed {limit} bytes.")


class EncodingUnsupported(Problem):
    """The body is compressed: send it as it is."""

    status, code = 415, "encoding_unsupported"
    sent: ClassVar = {"Accept-Encoding": "identity", **_LAST}

    def __init__(self, encoding: str) -> None:
        super().__init__(f"A body with Content-Encoding {encoding!r} is not read: send it as it is.")


class BadRequest(Problem):
    """The input is no HTTP request that can be parsed, or its head exceeds 64 KiB."""

    status, code, default = 400, "bad_request", "This is no readable HTTP/1.1 request, or its head exceeds 64 KiB."


class RequestTooSlow(Problem):
    """The first line and the headers did not arrive in time (`RUNWIRE_REQUEST_HEAD_S`)."""

    status, code = 408, "request_too_slow"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The head of the request did not arrive within {seconds:g} s.")


class BodyTooSlow(Problem):
    """The body did not arrive within 30 s, or an upload paused for so long."""

    status, code, sent = 408, "body_too_slow", _LAST

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The body did not arrive within {seconds:g} s.")


class BadCursor(Problem):
    """`Last-Event-ID` does not come from this run's stream: leave it out, or send one of this run."""

    status, code, default = 400, "bad_cursor", "Last-Event-ID is not the id of an event of this run."


class KeyMissing(Problem):
    """No API key, or an unknown one: send `Authorization: Bearer <key>`."""

    status, code, default = 401, "unauthorized", "This needs an API key: Authorization: Bearer <key>."
    sent: ClassVar = {"WWW-Authenticate": "Bearer"}


class TicketExpired(Problem):
    """The ticket of an event stream has ended: ask for another one, with the API key."""

    status, code, default = 401, "ticket_expired", "This ticket has ended: ask for another one, with the API key."


class Forbidden(Problem):
    """The `Host` is no loopback name (a gateway without keys), or the `Origin` is not in `RUNWIRE_CORS_ORIGINS`."""

    status, code = 403, "forbidden"


class RightMissing(Problem):
    """The API key has not the right that this route needs: `detail` names it."""

    status, code = 403, "right_missing"

    def __init__(self, right: str) -> None:
        super().__init__(f"This needs an API key with the right `{right}`.")


class NotAllowed(Problem):
    """The request names what its API key may not use: leave out what `errors` names, or use another key."""

    status, code = 403, "not_allowed"

    def __init__(self, field: str, message: str) -> None:
        super().__init__("This API key does not allow the request.", errors=[{"field": field, "message": message}])


class NotFound(Problem):
    """It does not exist, or belongs to another tenant or user: the answer is the same, byte for byte."""

    status, code = 404, "not_found"
    default = "There is no such run, session, task, group, schedule, pause, artifact or address; see GET /openapi.json."


class ProposalGone(Problem):
    """The session has forgotten a proposal, or its data is not stored any more."""

    status, code, default = 410, "proposal_gone", "This proposal is past: its session, or the store, has it no longer."


class IdempotencyConflict(Problem):
    """The idempotency key, or the id of an event, stands for a run with another body, or a deleted one."""

    status, code, default = 409, "idempotency_conflict", "This Idempotency-Key or Last-Event-ID has another body."


class NotRunning(Problem):
    """The run has not begun, or has ended: it cannot be topped up."""

    status, code, default = 409, "not_running", "Only a run that has begun and has not ended can be topped up."


class SessionBusy(Problem):
    """Another run of the session has the turn, and the request says `on_busy: reject`."""

    status, code, default = 409, "session_busy", "Another run of this session has the turn."


class SessionDeleting(Problem):
    """The session is being deleted: ask again once it is gone, or in another one."""

    status, code = 409, "session_deleting"
    default = "This session is being deleted; ask again once it is gone, or with another session_id."


class RefusedByPlanner(Problem):
    """A planner refuses what a person asks of a run or session. `code` and `reason` are those of its answer."""

    MEANINGS: ClassVar[dict[str, str]] = {
        "run_ended": "The run has ended: ask in its session.",
        "pause_closed": "Somebody has decided, or the pause has expired.",
        "pause_changed": "Something else waits now than the token names: decide about what `pauses` says.",
        "already_ended": "The task or group has ended.",
        "already_decided": "Its results were applied, or rejected, before.",
        "group_not_complete": "Seal the group, and decide once all its tasks have ended.",
        "task_in_group": "Decide about the group of the task.",
        "nothing_held": "No result of it waits for a person.",
        "proposal_applying": "Another choice of the proposal is being applied.",
        "proposal_closed": "Another decision about the proposal came first, or a new message: see `state`.",
        "proposal_open": "The turn that makes the proposal has not ended.",
        "input_refused": "A rule of the run's agent (`input_rules`) does not admit this text.",
        "invalid_decision": "A pause of this kind does not take this decision.",
        "too_many_inputs": "64 inputs wait for the model's next decision: wait `Retry-After` seconds.",
    }
    STATUSES: ClassVar[dict[str, int]] = {"input_refused": 422, "invalid_decision": 422, "too_many_inputs": 429}
    """By code; 409 else."""

    def __init__(self, code: str, reason: str, **extra: Any) -> None:
        self.status, self.code = self.STATUSES.get(code, 409), code
        super().__init__(reason, headers={"Retry-After": "2"} if code == "too_many_inputs" else {}, **extra)


class ToolFailed(Problem):
    """The tool that the address stands for has failed: see its log. `code`: its own, else that of the failed call."""

    status, code = 502, "tool_error"
    STATUSES: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("table_not_found", "row_not_found"), 404),
        **dict.fromkeys(("row_changed", "proposal_reused"), 409),
        **dict.fromkeys(("invalid_args", "rejected"), 422),
        **dict.fromkeys(("unknown_tool", "database_unavailable"), 503),
        **dict.fromkeys(sorted({*get_args(Code)} - {"invalid_args", "rejected", "unknown_tool"}), 502),
    }
    """By code. Every other code is a tool's own, and says what is wrong with the request."""

    def __init__(self, fault: Fault) -> None:
        self.code = fault.tool_code or fault.code
        self.status = 503 if fault.retryable else self.STATUSES.get(self.code, 422)
        super().__init__(
            fault.reason, headers={"Retry-After": "2"} if self.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
        )


class RangeNotSatisfiable(Problem):
    """The artifact ends before the range: `Content-Range` tells its size."""

    status, code = 416, "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        super().__init__(f"The artifact has {size} bytes.", headers={"Content-Range": f"bytes */{size}"})


class TooManyRuns(Problem):
    """The tenant (`RUNWIRE_MAX_OPEN_RUNS`) or the API key (`max_runs`) has as many open runs as it may."""

    status, code, sent = 429, "too_many_runs", {"Retry-After": "2"}

    def __init__(self, limit: int, owner: str) -> None:
        """`owner`: whose limit it is, in words."""
        wait = "wait for one to end, or cancel one"
        super().__init__(f"{limit} runs of this {owner} are open, and no more are allowed; {wait}.")


class KeyBudgetSpent(Problem):
    """The runs of the API key have spent what they may on this day: wait until midnight UTC (`Retry-After`)."""

    status, code = 429, "key_budget_spent"

    def __init__(self, limit: str, after_s: int) -> None:
        """`limit`: the field of the key's line, with its value. `after_s`: seconds until the day ends by UTC."""
        super().__init__(
            f"The runs of this API key have spent its {limit}; the next day begins at midnight UTC.",
            headers={"Retry-After": str(after_s)},
        )


class TooManySchedules(Problem):
    """The tenant has 1,000 schedules and webhooks, or the API key 500: delete one."""

    status, code = 429, "too_many_schedules"

    def __init__(self, limit: int, owner: str) -> None:
        super().__init__(f"This {owner} has {limit} schedules and webhooks, and no more are allowed; delete one.")


class TooManyStreams(Problem):
    """The tenant has as many open streams as it may (`RUNWIRE_MAX_STREAMS_PER_TENANT`): close one."""

    status, code, sent = 429, "too_many_streams", {"Retry-After": "5"}

    def __init__(self, limit: int, **extra: Any) -> None:
        super().__init__(f"{limit} connections wait for runs, and no more are allowed; close one.", **extra)


class TryAgain(Problem):
    """NATS, the artifact store or the gateway cannot take it now: repeat it after `Retry-After`, with the same key."""

    status, code, default = 503, "unavailable", "The service cannot take this right now."

    def __init__(self, detail: str | None = None, *, after_s: int = 2, **extra: Any) -> None:
        super().__init__(detail, headers={"Retry-After": str(after_s)}, **extra)


def _in_words(kind: str, message: str) -> str:
    """Return pydantic's message in words that need no knowledge of pydantic."""
    match kind:
        case "extra_forbidden":
            return "there is no such field"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be a JSON object"
    return message.removeprefix("Value error, ")


def _shown(name: object) -> str:
    text = str(name)  # A value that was sent as a field's name by mistake is not returned.
    return text if len(text) <= _MAX_NAME_CHARACTERS else f"<{len(text)} characters>"
