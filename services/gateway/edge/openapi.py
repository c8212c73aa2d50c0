"""The OpenAPI document: FastAPI's, with the bodies that the gateway reads itself and one shape for every error."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from contracts.runs.requests import InputInput, ResumeInput, RunInput
from contracts.sessions.records import SessionContextInput
from contracts.sessions.schedules import ScheduleInput
from services.gateway.catalogue.plans import PlanCheckInput
from services.gateway.edge import health
from services.gateway.errors import MEDIA_TYPE, ProblemBody
from services.gateway.runs.chat import ChatInput
from services.gateway.runs.routes import CancelInput, TopUpInput
from services.gateway.sessions.task_routes import TaskChangeInput

_MODELS = (
    *(RunInput, CancelInput, TopUpInput, ResumeInput, InputInput, SessionContextInput, ChatInput, TaskChangeInput),
    *(ScheduleInput, PlanCheckInput),
    *(ProblemBody, health.Alive, health.Readiness),
)
"""Schemas that FastAPI does not find by itself."""
_UNUSED = ("HTTPValidationError", "ValidationError")


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the document, which is generated once per application."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        _, found = models_json_schema(
            [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
        )
        schemas.update(found["$defs"])
        for name in _UNUSED:
            schemas.pop(name, None)
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}, {}]
        for operations in document["paths"].values():
            for operation in operations.values():
                _finish(operation)
        for path, operations in health.PATHS.items():
            document["paths"][path] = {method: {**each, "security": []} for method, each in operations.items()}
        app.openapi_schema = document
    return app.openapi_schema


def _finish(operation: dict[str, Any]) -> None:
    problem = {"schema": {"$ref": f"#/components/schemas/{ProblemBody.__name__}"}}
    operation["responses"].pop("422", None)
    for parameter in operation.get("parameters", ()):
        _remove_null(parameter["schema"])
    operation["responses"]["default"] = {"description": "A problem (RFC 9457).", "content": {MEDIA_TYPE: problem}}


def _remove_null(schema: dict[str, Any]) -> None:
    """Remove null from a parameter's types: it is left out where Python has None, and `null` would be a text."""
    if "anyOf" in schema:
        types = [each for each in schema.pop("anyOf") if each.get("type") != "null"]
        schema.update(types[0] if len(types) == 1 else {"anyOf": types})
