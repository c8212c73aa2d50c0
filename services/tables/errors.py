"""Everything that the service refuses. The text names what is wrong and how to mend it; the code is for programs."""

from collections.abc import Sequence

from runwire import ToolError


class Refused(ToolError):
    """The request cannot be carried out, and nothing was changed. `field`: the column or argument that is wrong."""

    def __init__(self, code: str, reason: str, field: str = "") -> None:
        super().__init__(reason, code=code)
        self.field = field


class SchemaRefused(Refused):
    """A change of columns is refused as a whole. `errors`: each as `code@path`."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__(errors[0].partition("@")[0], f"the columns are refused: {', '.join(errors)}")
        self.errors = list(errors)


class LimitExceeded(Refused):
    """More than the service keeps; the text names the limit."""

    def __init__(self, what: str, limit: int, found: int) -> None:
        super().__init__("limit_exceeded", f"at most {limit:,} {what} are kept, not {found:,}")


class DatabaseUnavailable(ToolError):
    """The database does not answer, or not as it is; the same call may succeed later. `remedy`: what has to be done."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        text = f"the database cannot be used: {reason}; {remedy}"
        super().__init__(
            text if remedy else f"the database does not answer ({reason}); try again later", retryable=True
        )
        self.code = "database_unavailable"
