"""Describes `/livez` and `/readyz` for OpenAPI. `services/runtime/http_server.py` answers them, also without NATS."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class Alive(BaseModel):
    """The answer of `/livez`."""

    status: Literal["alive"]
    service: str


class Readiness(BaseModel):
    """The answer of `/readyz`."""

    status: Literal["ready", "not ready"]
    problems: list[str] = Field(description="why the gateway is not ready, as sentences")


def _operation(summary: str, description: str, answers: dict[str, tuple[str, type[BaseModel]]]) -> dict[str, Any]:
    responses = {
        status: {
            "description": meaning,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}},
        }
        for status, (meaning, model) in answers.items()
    }
    return {"get": {"tags": ["health"], "summary": summary, "description": description, "responses": responses}}


PATHS = {
    "/livez": _operation("Livez", "Whether the process runs.", {"200": ("It runs.", Alive)}),
    "/readyz": _operation(
        "Readyz",
        "Whether requests can be answered now.",
        {"200": ("They can.", Readiness), "503": ("They cannot; `problems` says why.", Readiness)},
    ),
}
"""Descriptions of the two addresses. They need no key, so they belong to `auth.OPEN_PATHS`."""
