"""The arguments and the result of a function, read from its annotations, as models and as JSON Schema."""

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    create_model,
)

from runwire.errors import UnsupportedSignature
from runwire.tools.context import ToolContext


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
        self._attributes = {name: _attribute(number, name) for number, name in enumerate(fields)}
        self._whole, self._model = self._arguments(fields)
        returned = hints.get("return", Any)
        origin = typing.get_origin(returned)
        if isinstance(origin, type) and issubclass(origin, Awaitable):  # X of `Awaitable[X]`, of a plain function
            returned = typing.get_args(returned)[-1]
        self.result: TypeAdapter[Any] = self._schema_of("result", lambda: TypeAdapter(returned))
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

    def _arguments(self, fields: dict[str, tuple[Any, Any]]) -> tuple[str | None, type[BaseModel]]:
        """A single model is used as it is; plain parameters become the fields of a model that forbids others."""
        if len(fields) == 1:
            ((name, (hint, default)),) = fields.items()
            if isinstance(hint, type) and issubclass(hint, BaseModel) and default is ...:
                return name, hint
        definitions: dict[str, Any] = {}
        for name, (hint, default) in fields.items():
            attribute = self._attributes[name]
            definitions[attribute] = (hint if attribute == name else Annotated[hint, Field(alias=name)], default)
        config = ConfigDict(extra="forbid", protected_namespaces=())
        model = self._schema_of("arguments", lambda: create_model(self._name, __config__=config, **definitions))
        return None, model

    def _schema_of(self, what: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
            reason = str(error).splitlines()[0]
            raise UnsupportedSignature(
                f"{self._name}: its {what} cannot be described as JSON Schema: {reason}"
            ) from None


def _attribute(number: int, name: str) -> str:
    """Return the field of a parameter. A name that means something else to pydantic is only the alias of its field."""
    return f"parameter {number}" if name.startswith("_") or hasattr(BaseModel, name) else name


def _has_bytes(schema: Any) -> bool:
    """Whether a schema has bytes that pydantic would write as text; another `ser_json_bytes` gives another format."""
    if isinstance(schema, dict):
        return (schema.get("format") == "binary" and schema.get("type") == "string") or any(
            map(_has_bytes, schema.values())
        )
    return isinstance(schema, list) and any(map(_has_bytes, schema))
