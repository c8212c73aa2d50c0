"""Tools in Python: a function with typed arguments and a typed result.

Rule 1: `@tool` describes a function and changes nothing about it: it is called as before, so its tests need no server.
Rule 2: the specification is made from the types, once, at import; what cannot be described is refused there, in one
sentence.
Rule 3: what a tool raises on purpose is a `ToolError`, whose text the model reads; of every other exception only type
and text travel.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from pydantic import ValidationError
from pydantic_core import to_json

from runwire._contracts_import import names
from runwire._contracts_import import tools as wire
from runwire.tools.context import ToolContext, ToolError
from runwire.tools.signatures import Signature, Undescribable, complaint

__all__ = ["Tool", "ToolContext", "ToolError", "Undescribable", "tool"]

P = ParamSpec("P")
R = TypeVar("R")
SideEffects = Literal["none", "read", "write", "external"]

BEAT_S = 0.5
"""Whoever serves a tool says so often of each call that it is alive."""
_UTF8 = "invalid utf-8"
"""So pydantic says of bytes where a type left open what comes."""


class Tool(Generic[P, R]):
    """A function that can be served. Call it as the function that it is; `run` does what a server does."""

    __name__: str

    def __init__(self, function: Callable[P, R], spec: wire.ToolSpec, version: str, signature: Signature) -> None:
        functools.update_wrapper(self, function)
        self.spec = spec
        self.version = version
        self._function: Callable[..., Any] = function
        self._signature = signature

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        result: R = self._function(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"<tool {self.spec.name} {self.version}>"

    @property
    def name(self) -> str:
        """The tool's name on the bus."""
        return self.spec.name

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function; any other is run in a thread."""
        return inspect.iscoroutinefunction(self._function)

    def check(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return keyword arguments for the function.

        Raises ToolError, code `invalid_args`, which says what is wrong with which.
        """
        try:
            return self._signature.bind(args)
        except ValidationError as error:
            raise ToolError(complaint(error), code="invalid_args") from error

    def start(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Call the function with what `check` returned; a coroutine function gives a coroutine."""
        if self._signature.context is not None:
            return self._function(**arguments, **{self._signature.context: ctx})
        return self._function(**arguments)

    def encode(self, value: Any) -> bytes:
        """Return a result as JSON, bytes as base64.

        Raises ToolError, code `invalid_result`, when it is not what the annotation says.
        """
        adapter = self._signature.result
        try:
            checked = adapter.validate_python(value)
            # A model that was changed after it was checked is found out by tool_runner; pydantic would warn, and show
            # the value in the log.
            if self._signature.has_bytes:  # pydantic by itself takes them for text, and fails where they are none.
                raw = adapter.dump_python(checked, by_alias=True, warnings=False)
                return to_json(raw, bytes_mode="base64", inf_nan_mode="null")
            return adapter.dump_json(checked, by_alias=True, warnings=False)
        except ValidationError as error:
            raise ToolError(
                f"the tool returned what its own type does not allow: {complaint(error)}", code="invalid_result"
            ) from error
        except (ValueError, TypeError, RecursionError) as error:
            hint = "; bytes travel where the function's result type says `bytes`" if _UTF8 in str(error) else ""
            raise ToolError(f"the tool returned what is no JSON: {error}{hint}", code="invalid_result") from error

    async def run(self, args: Mapping[str, Any], ctx: ToolContext) -> bytes:
        """Check the arguments, run the function, encode its result.

        A plain function runs in a thread. Raises ToolError.
        """
        arguments = self.check(args)
        value = self.start(arguments, ctx) if self.is_async else await asyncio.to_thread(self.start, arguments, ctx)
        return self.encode(await value if inspect.isawaitable(value) else value)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    desc: str | None = None,
    name: str | None = None,
    tags: list[str] | None = None,
    idempotent: bool = False,
    side_effects: SideEffects = "none",
    timeout_s: float = 30,
    concurrency: int = 64,
    requires_approval: bool = False,
    version: str = "1.0.0",
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    desc: str | None = None,
    name: str | None = None,
    tags: list[str] | None = None,
    version: str = "1.0.0",
    **flags: Any,
) -> Any:
    """Make a function a tool.

    Its arguments are one pydantic model, or plain annotated parameters; a parameter annotated `ToolContext` gets the
    call's context. The return annotation becomes the output schema, with its marks.

    Args:
        function: the function, where the decorator stands without parentheses.
        desc: what the model reads; default: the docstring.
        name: the tool's name on the bus, `[A-Za-z0-9_-]{1,64}`; default: the function's name.
        tags: words to find it by.
        version: of the service (SemVer); where several are served, the highest is used.
        **flags: `idempotent`: a call may be repeated under the same key, so that a crash in its middle is made good by
            another copy.
            `side_effects`: none, read, write or external. `timeout_s`: seconds without any sign of the function after
            which the call is given up. `concurrency`: calls at once over all copies. `requires_approval`: no call
            without a person's approval; there is no way to give one yet, so every call ends as `approval_unavailable`.

    Raises:
        Undescribable: the signature cannot be described.
        ValueError: a name or flag is not allowed.
    """
    unknown = flags.keys() - {"idempotent", "side_effects", "timeout_s", "concurrency", "requires_approval"}
    if unknown:
        raise TypeError(f"tool() takes no {', '.join(sorted(unknown))}")

    def decorate(function: Callable[..., Any]) -> Tool[..., Any]:
        signature = Signature(function)
        spec = wire.ToolSpec(
            name=names.checked_tool(name or getattr(function, "__name__", "")),
            description=desc if desc is not None else inspect.getdoc(function) or "",
            input_schema=signature.input_schema,
            output_schema=signature.output_schema,
            heartbeat_s=BEAT_S,
            tags=tags or [],
            **flags,
        )
        return Tool(function, spec, version, signature)

    return decorate if function is None else decorate(function)
