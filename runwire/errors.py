"""Every error that `runwire` raises on purpose.

`RunwireError` and its subclasses come from `Client`, `ToolError` from tools, the others from what declares, loads and
serves tools.
"""


class RunwireError(Exception):
    """The gateway refused a request.

    Attributes:
        code: for programs; docs/rules/problems.md lists them.
        detail: for people.
        status: of HTTP; None when no answer came.
        retry_after: seconds to wait before the next attempt, when the gateway named them.
        errors: the fields that were wrong, each as `{"field": …, "message": …}`.
        run_id: the run that was accepted nevertheless, if any.
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
        fields = "".join(f"; {error.get('field') or 'body'}: {error.get('message', '')}" for error in errors)
        super().__init__(f"{code}: {detail.rstrip('.') if fields else detail}{fields}")
        self.code = code
        self.detail = detail
        self.status = status
        self.retry_after = retry_after
        self.errors = errors
        self.run_id = run_id


class NotFound(RunwireError):
    """There is no such run, session, pause or artifact, or it belongs to another tenant or user."""


class IdempotencyConflict(RunwireError):
    """The idempotency key was used for another question."""


class SessionBusy(RunwireError):
    """Another run of the session has the turn, and the request said `on_busy="reject"`."""


class PauseClosed(RunwireError):
    """The pause is over: somebody else has decided, or it has expired."""


class PauseChanged(RunwireError):
    """Something else waits now than the person saw: read the pauses again, and decide about what they say."""


class RunAlreadyEnded(RunwireError):
    """The run has ended, so it takes neither an input nor a decision."""


class Unreachable(RunwireError):
    """No gateway answered within the client's `patience_s`, or nobody listens at its address.

    A run that was accepted before continues.
    """


class ToolError(Exception):
    """A tool cannot do what it was asked to do. The model reads `reason`, so it should say what to do differently.

    `retryable`: the same call may succeed later. `code` is for programs.
    """

    def __init__(self, reason: str, *, retryable: bool = False, code: str = "tool_error") -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        self.code = code


class UnsupportedSignature(TypeError):
    """A function cannot become a tool; the text names the part of its signature that prevents it."""


class ToolsNotLoaded(ValueError):
    """The tools of a file cannot be served; the text says why."""


class InvalidCredential(ValueError):
    """A credential file, a URL of NATS or a certificate authority cannot be used; the text says why."""


class IncompleteLogin(InvalidCredential):
    """A NATS user was given without a password, or a password without a user."""


class IdentitiesUnreadable(Exception):
    """The file with the users of NATS cannot be read; the text names it and says what to do."""


class UnknownIdentity(Exception):
    """There is no such user of NATS."""


class ServerRefused(Exception):
    """NATS did not take its new configuration, and keeps the old one; the text says why."""


class ToolsNotAllowed(Exception):
    """NATS allows none of the tools to this user; the text says which command gives a credential."""
