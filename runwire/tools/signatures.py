"""What a function takes and gives, read from its annotations, as models and as JSON Schema."""

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)

from runwire.tools.context import ToolContext

_MAX_COMPLAINTS = 5


class Undescribable(TypeError):
    """A function cannot be a tool: it says which part of its signature stands in the way."""


class Signature:
    """The arguments, the result, and the name of the parameter that takes the context, if there is one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.context: str | None = None
        self._name = getattr(function, "__name__", "tool")
        hints = self._hints(function)
        fields: dict[str, tuple[Any, Any]] = {}
        for parameter in inspect.signature(function).parameters.values():
            hint = hints.get(parameter.name, Any)
            if hint is ToolContext:
                self.context = parameter.name
            elif parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                raise Undescribable(
                    f"{self._name}: parameter {parameter.name!r} has no name in the arguments, so it cannot be described"
                )
            else:
                fields[parameter.name] = (hint, ... if parameter.default is parameter.empty else parameter.default)
        self._whole, self._model = self._arguments(fields)
        self.result: TypeAdapter[Any] = self._described(
            "result", lambda: TypeAdapter(_awaited(hints.get("return", Any)))
        )
        self.input_schema: dict[str, Any] = self._described(
            "arguments", lambda: self._model.model_json_schema(mode="validation")
        )
        self.output_schema: dict[str, Any] | None = (
            self._described("result", lambda: self.result.json_schema(mode="serialization")) or None
        )
        self.has_bytes = _has_bytes(self.output_schema)

    def bind(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Check JSON arguments and return keyword arguments. Raises pydantic's ValidationError."""
        checked = self._model.model_validate(args)
        if self._whole is not None:
            return {self._whole: checked}
        return {name: getattr(checked, name) for name in type(checked).model_fields}

    def _hints(self, function: Callable[..., Any]) -> dict[str, Any]:
        try:
            return typing.get_type_hints(function, include_extras=True)
        except NameError as error:
            raise Undescribable(
                f"{self._name}: the annotation {error.name!r} is not defined at the top of its module"
            ) from error

    def _arguments(self, fields: dict[str, tuple[Any, Any]]) -> tuple[str | None, type[BaseModel]]:
        """One model takes the arguments as a whole; plain parameters become the fields of a model that takes no others."""
        if len(fields) == 1:
            ((name, (hint, default)),) = fields.items()
            if isinstance(hint, type) and issubclass(hint, BaseModel) and default is ...:
                return name, hint
        definitions: dict[str, Any] = dict(fields)
        model = self._described(
            "arguments", lambda: create_model(self._name, __config__=ConfigDict(extra="forbid"), **definitions)
        )
        return None, model

    def _described(self, what: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
            reason = str(error).splitlines()[0]
            raise Undescribable(f"{self._name}: its {what} cannot be described as JSON Schema: {reason}") from error


def _has_bytes(schema: Any) -> bool:
    """Whether pydantic would write bytes as text: `ser_json_bytes` set to anything else gives another format."""
    if isinstance(schema, dict):
        return (schema.get("format") == "binary" and schema.get("type") == "string") or any(
            map(_has_bytes, schema.values())
        )
    return isinstance(schema, list) and any(map(_has_bytes, schema))


def complaint(error: ValidationError) -> str:
    """Say what is wrong with which field. Values are not repeated: they may be secret, or long."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    said = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" if fault["loc"] else fault["msg"] for fault in faults]
    return "; ".join(said[:_MAX_COMPLAINTS])


def _awaited(hint: Any) -> Any:
    """Return what comes out of `Awaitable[X]`: a plain function may return one."""
    origin = typing.get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Awaitable):
        return typing.get_args(hint)[-1]
    return hint
