"""What the client raises."""

from typing import Any


class RunwireError(Exception):
    """The gateway said no. `code` is for programs (docs/http.md lists them), `detail` for people.

    `status` is that of HTTP, None when no answer came; `retry_after` seconds, when the gateway named them; `errors` the
    fields that were wrong, as `{field, message}`; `run_id` the run that was accepted all the same, if any.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        errors: tuple[dict[str, str], ...] = (),
        run_id: str | None = None,
    ) -> None:
        named = "".join(f"; {error.get('field') or 'body'}: {error.get('message', '')}" for error in errors)
        super().__init__(f"{code}: {detail.rstrip('.') if named else detail}{named}")
        self.code = code
        self.detail = detail
        self.status = status
        self.retry_after = retry_after
        self.errors = errors
        self.run_id = run_id


class NotFound(RunwireError):
    """There is no such run, or it is another tenant's."""


class IdempotencyConflict(RunwireError):
    """The idempotency key was used for another question."""


class Unreachable(RunwireError):
    """No gateway took the request within the client's patience. What was accepted before goes on without us."""


_CLASSES: dict[str, type[RunwireError]] = {"not_found": NotFound, "idempotency_conflict": IdempotencyConflict}


def error_of(status: int, retry_after: str | None, problem: Any) -> RunwireError:
    """Build the error for an answer; `problem` is its JSON body, or None when it had none (a proxy answered)."""
    body: dict[str, Any] = problem if isinstance(problem, dict) else {}
    code = str(body.get("code", f"http_{status}"))
    errors = body.get("errors")
    return _CLASSES.get(code, RunwireError)(
        code,
        str(body.get("detail", f"HTTP status {status}")),
        status=status,
        retry_after=float(retry_after) if retry_after and retry_after.isdigit() else None,
        errors=tuple(error for error in errors if isinstance(error, dict)) if isinstance(errors, list) else (),
        run_id=body.get("run_id"),
    )
