"""`@tool`: make a function with typed arguments and a typed result a tool.

Rule 1: the function stays as it is: it is called as before, so its tests need no server.
Rule 2: the specification is built from the annotations once, at import: arguments and result as models and as JSON
Schema (`Signature`). A type that cannot be described is refused there.
Rule 3: what a tool raises on purpose is a `ToolError`, whose text the model reads; of every other exception only type
and text are sent.
"""

import asyncio
import functools
import inspect
import json
import logging
import os
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Generic, Literal, ParamSpec, TypeVar, overload

import pydantic
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from contracts.tools import messages as wire
from contracts.wire import names
from contracts.wire.faults import describe
from runwire.errors import ToolError, UnsupportedSignature
from runwire.tools.context import Pauses, ToolContext
from runwire.tools.responses import ToolResponse

logger = logging.getLogger("runwire.tools")


class Signature:
    """The arguments, the result, and the name of the parameter that takes the context, if there is one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.context: str | None = None
        self._name = getattr(function, "__name__", "tool")
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as error:
            raise UnsupportedSignature(
                f"{self._name}: the annotation {error.name!r} is not defined at the top of its module"
            ) from None
        fields: dict[str, tuple[Any, Any]] = {}
        for parameter in inspect.signature(function).parameters.values():
            hint = hints.get(parameter.name, Any)
            if hint is ToolContext:
                self.context = parameter.name
            elif parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                raise UnsupportedSignature(
                    f"{self._name}: parameter {parameter.name!r} cannot be given by name, so it cannot be described"
                )
            else:
                fields[parameter.name] = (hint, ... if parameter.default is parameter.empty else parameter.default)
        # A name that means something else to pydantic is only the alias of its field.
        taken = {name for name in fields if name.startswith("_") or hasattr(pydantic.BaseModel, name)}
        self._attributes = {name: f"parameter {n}" if name in taken else name for n, name in enumerate(fields)}
        self._whole, self._model = self._arguments(fields)
        returned = hints.get("return", Any)
        origin = typing.get_origin(returned)
        if isinstance(origin, type) and issubclass(origin, Awaitable):  # X of `Awaitable[X]`, of a plain function
            returned = typing.get_args(returned)[-1]
        self.result: pydantic.TypeAdapter[Any] = self._schema_of("result", lambda: pydantic.TypeAdapter(returned))
        self.input_schema: dict[str, Any] = self._schema_of(
            "arguments", lambda: self._model.model_json_schema(mode="validation")
        )
        self.output_schema: dict[str, Any] | None = (
            self._schema_of("result", lambda: self.result.json_schema(mode="serialization")) or None
        )
        self.has_bytes = _has_bytes(self.output_schema)

    def bind(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Check JSON arguments and return them as keyword arguments. Raises pydantic's ValidationError."""
        checked = self._model.model_validate(args)
        if self._whole is not None:
            return {self._whole: checked}
        return {name: getattr(checked, attribute) for name, attribute in self._attributes.items()}

    def _arguments(self, fields: dict[str, tuple[Any, Any]]) -> tuple[str | None, type[pydantic.BaseModel]]:
        """A single model is used as it is; plain parameters become the fields of a model that forbids others."""
        if len(fields) == 1:
            ((name, (hint, default)),) = fields.items()
            if isinstance(hint, type) and issubclass(hint, pydantic.BaseModel) and default is ...:
                return name, hint
        definitions: dict[str, Any] = {}
        for name, (hint, default) in fields.items():
            attribute = self._attributes[name]
            definitions[attribute] = (
                hint if attribute == name else Annotated[hint, pydantic.Field(alias=name)],
                default,
            )
        config = pydantic.ConfigDict(extra="forbid", protected_namespaces=())
        model = self._schema_of(
            "arguments", lambda: pydantic.create_model(self._name, __config__=config, **definitions)
        )
        return None, model

    def _schema_of(self, what: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (pydantic.PydanticSchemaGenerationError, pydantic.PydanticUserError, NameError) as error:
            reason = str(error).splitlines()[0]
            raise UnsupportedSignature(
                f"{self._name}: its {what} cannot be described as JSON Schema: {reason}"
            ) from None


def _has_bytes(schema: Any) -> bool:
    """Whether a schema has bytes that pydantic would write as text; another `ser_json_bytes` gives another format."""
    if isinstance(schema, dict):
        return (schema.get("format") == "binary" and schema.get("type") == "string") or any(
            map(_has_bytes, schema.values())
        )
    return isinstance(schema, list) and any(map(_has_bytes, schema))


P = ParamSpec("P")
R = TypeVar("R")
SideEffects = Literal["none", "read", "write", "external"]

HEARTBEAT_INTERVAL_S = 0.5
"""How often a process that serves tools sends a heartbeat for each call."""
_ALLOWED = {
    "desc": "a text",
    "tags": "a list of texts",
    "idempotent": "True or False",
    "side_effects": "'none', 'read', 'write' or 'external'",
    "timeout_s": "a number of seconds above 0 and at most 86400",
    "concurrency": "a whole number from 1 to 10000",
    "requires_approval": "True or False",
    "hidden": "True or False",
}
"""Flag -> the values that it may have."""
_BYTES_ERROR = "invalid utf-8"
"""What pydantic's error says when bytes come where the type allows anything."""
_SURROGATES_ERROR = "surrogates not allowed"
"""What it says of halves of characters, such as those of an emoji that was cut: UTF-8 has none."""


def _plain(value: Any) -> Any:
    """Return what is sent in place of a value that pydantic cannot write. Raises TypeError where there is nothing."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, memoryview):
        return bytes(value)
    raise TypeError(f"there is no JSON for {type(value).__qualname__}")


class Tool(Generic[P, R]):
    """A function that can be served. Calling it calls the function; `run` does what a server does."""

    __name__: str

    def __init__(self, function: Callable[P, R], spec: wire.ToolSpec, version: str, signature: Signature) -> None:
        functools.update_wrapper(self, function)
        self.spec = spec
        self.version = version
        self._function: Callable[..., Any] = function
        self._signature = signature
        self.is_async = inspect.iscoroutinefunction(function)
        """Whether the function is a coroutine function; any other runs in a thread."""

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

    def check(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Check JSON arguments and return them as keyword arguments for the function.

        Raises ToolError, code `invalid_args`, which names the fields that are wrong.
        """
        try:
            return self._signature.bind(args)
        except pydantic.ValidationError as error:
            raise ToolError(describe(error), code="invalid_args") from error

    def start(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Call the function with what `check` returned; a coroutine function gives a coroutine."""
        if self._signature.context is not None:
            return self._function(**arguments, **{self._signature.context: ctx})
        return self._function(**arguments)

    def encode(self, value: Any, ctx: ToolContext | None = None) -> bytes:
        """Return a result as JSON, bytes as base64. `ctx`: completes a ToolResponse, and gets its content.

        Raises ToolError, code `invalid_result`, when it does not fit the return annotation.
        """
        adapter, has_bytes = self._signature.result, self._signature.has_bytes
        try:
            if isinstance(value, ToolResponse) and ctx is not None:
                value = value.completed(self.name, ctx)
            checked = adapter.validate_python(value)
            # tool_runner refuses a model that was changed after its validation; a warning of pydantic would show the
            # value in the log.
            try:
                if has_bytes:  # pydantic alone writes bytes as text, and fails where they are not UTF-8.
                    raw = adapter.dump_python(checked, by_alias=True, warnings=False)
                    return to_json(raw, bytes_mode="base64", inf_nan_mode="null", fallback=_plain)
                return adapter.dump_json(checked, by_alias=True, warnings=False, fallback=_plain)
            except PydanticSerializationError as error:
                if _SURROGATES_ERROR not in str(error):
                    raise
            mode: Literal["python", "json"] = "python" if has_bytes else "json"
            raw = adapter.dump_python(checked, mode=mode, by_alias=True, warnings=False, fallback=_plain)
            text = json.dumps(to_jsonable_python(raw, bytes_mode="base64", fallback=_plain), ensure_ascii=False)
            whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return to_json(json.loads(whole), inf_nan_mode="null")
        except pydantic.ValidationError as error:
            raise ToolError(
                f"the tool returned a value that its return type does not allow: {describe(error)}",
                code="invalid_result",
            ) from error
        except (ValueError, TypeError, RecursionError) as error:
            hint = "; declare bytes as `bytes` in the function's return type" if _BYTES_ERROR in str(error) else ""
            raise ToolError(
                f"the tool returned a value that is not JSON: {error}{hint}", code="invalid_result"
            ) from error

    async def run(self, args: Mapping[str, Any], ctx: ToolContext) -> bytes:
        """Check the arguments, run the function, encode its result.

        A plain function runs in a thread. Raises ToolError.
        """
        arguments = self.check(args)
        value = self.start(arguments, ctx) if self.is_async else await asyncio.to_thread(self.start, arguments, ctx)
        result = await value if inspect.isawaitable(value) else value
        if isinstance(ctx, Pauses):
            ctx.check_not_caught()
        return self.encode(result, ctx)


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
    hidden: bool = False,
    version: str = "1.0.0",
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    desc: str | None = None,
    name: str | None = None,
    tags: list[str] | None = None,
    idempotent: bool = False,
    side_effects: SideEffects = "none",
    timeout_s: float = 30,
    concurrency: int = 64,
    requires_approval: bool = False,
    hidden: bool = False,
    version: str = "1.0.0",
) -> Any:
    """Make a function a tool.

    Its arguments are one pydantic model, or plain annotated parameters; a parameter annotated `ToolContext` receives
    the call's context. The return annotation becomes the output schema, with its annotations for artifacts.

    Args:
        function: the function, where the decorator is used without parentheses.
        desc: what the model reads; default: the docstring.
        name: the tool's name on NATS, `[A-Za-z0-9_-]{1,64}`; default: the function's name.
        tags: words to find the tool by.
        idempotent: a call may be repeated with the same key; another instance then takes over a call whose process
            died.
        side_effects: what the tool does to the world.
        timeout_s: seconds without a sign of the function after which a call fails.
        concurrency: calls at the same time, over all instances.
        requires_approval: no call without a person's approval; the run waits until somebody decides.
        hidden: models are not offered it; only a person or program calls it, over HTTP.
        version: SemVer; where several versions are served, the highest is used.

    Raises:
        UnsupportedSignature: the signature cannot be described.
        ValueError: a name or flag is not allowed.
    """

    def decorate(function: Callable[..., Any]) -> Tool[..., Any]:
        signature = Signature(function)
        tool_name = names.checked_tool(name or getattr(function, "__name__", ""))
        try:
            spec = wire.ToolSpec(
                name=tool_name,
                description=desc if desc is not None else inspect.getdoc(function) or "",
                input_schema=signature.input_schema,
                output_schema=signature.output_schema,
                idempotent=idempotent,
                side_effects=side_effects,
                timeout_s=timeout_s,
                heartbeat_s=HEARTBEAT_INTERVAL_S,
                concurrency=concurrency,
                tags=tags or [],
                requires_approval=requires_approval,
                hidden=hidden,
            )
        except pydantic.ValidationError as error:
            fault = error.errors(include_url=False)[0]
            flag = "desc" if fault["loc"][0] == "description" else str(fault["loc"][0])
            wrong = f"{flag}={fault['input']!r} is not allowed; it must be {_ALLOWED[flag]}"
            raise ValueError(f"tool {tool_name}: {wrong}") from None
        shape = signature.output_schema or {}
        if shape.get("additionalProperties") is True and shape.keys() <= {"type", "title", "additionalProperties"}:
            logger.warning("%s: plans cannot refer to fields of a dict; return a model or a TypedDict", tool_name)
        return Tool(function, spec, version, signature)

    return decorate if function is None else decorate(function)
