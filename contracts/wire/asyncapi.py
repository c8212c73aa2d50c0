"""The AsyncAPI 3 document of every subject, as plain data, made from `channels` and the schemas of the messages.

It describes the whole system, not one application. An operation is what one service (its tag) sends or receives on a
channel. The replies to a request are a channel of their own, whose address is only known at run time.
"""

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .channel import PARAMETERS, ROLES, Body, Channel
from .channels import CHANNELS
from .records import VERSION

_REF = "#/components/schemas/{model}"
_ABOUT = """All messages between the services, tools and listeners of Runwire over NATS.
If a stream stores the messages of a subject, `x-stream` names it, and `x-consumer` the consumer that delivers them.
The API of NATS itself (`$JS.API`, acknowledgements) is not described here."""


def document() -> dict[str, Any]:
    """Return the document."""
    bodies = {body.name: body for channel in CHANNELS for body in (*channel.bodies, *channel.replies)}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for channel in CHANNELS:
        channels[channel.name] = _channel(channel)
        if channel.replies:
            channels[_reply_name(channel)] = _reply_channel(channel)
        operations |= _operations(channel)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Runwire",
            "version": f"{VERSION}.0.0",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "nats": {
                "host": "127.0.0.1:4222",
                "protocol": "nats",
                "security": [{"$ref": "#/components/securitySchemes/login"}],
            }
        },
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {name: _message(body) for name, body in sorted(bodies.items())},
            "schemas": _schemas([body.schema for body in bodies.values() if isinstance(body.schema, type)]),
            "parameters": {name: {"description": text} for name, text in PARAMETERS.items()},
            "securitySchemes": {
                "login": {"type": "userPassword", "description": "RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD"}
            },
            "tags": {name: {"name": name, "description": text} for name, text in ROLES.items()},
        },
    }


def text() -> str:
    """Return the text of the file."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def _reply_name(channel: Channel) -> str:
    return f"{channel.name}_reply"


def _channel(channel: Channel) -> dict[str, Any]:
    names = [part[1:-1] for part in channel.address.split(".") if part.startswith("{")]
    made: dict[str, Any] = {
        "address": channel.address,
        "description": channel.meaning,
        "messages": _messages(channel.bodies),
    }
    if names:
        made["parameters"] = {name: {"$ref": f"#/components/parameters/{name}"} for name in names}
    if channel.kept_in:
        made["x-stream"] = channel.kept_in
        if channel.queue:
            made["x-consumer"] = channel.queue
    return made


def _reply_channel(channel: Channel) -> dict[str, Any]:
    where = f"The reply subject of a request on `{channel.address}`."
    return {"address": None, "description": where, "messages": _messages(channel.replies)}


def _messages(bodies: tuple[Body, ...]) -> dict[str, Any]:
    return {body.name: {"$ref": f"#/components/messages/{body.name}"} for body in bodies}


def _operations(channel: Channel) -> dict[str, Any]:
    """What each service does on a channel."""
    made = {}
    for action, verb, roles in (("send", "sends", channel.senders), ("receive", "receives", channel.receivers)):
        for role in roles:
            operation: dict[str, Any] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{channel.name}"},
                "tags": [{"$ref": f"#/components/tags/{role}"}],
                "messages": _named(channel.name, channel.bodies),
            }
            if channel.queue and not channel.kept_in and action == "receive":
                operation["bindings"] = {"nats": {"queue": channel.queue, "bindingVersion": "0.1.0"}}
            if channel.replies:
                reply = _reply_name(channel)
                operation["reply"] = {
                    "channel": {"$ref": f"#/channels/{reply}"},
                    "messages": _named(reply, channel.replies),
                }
            made[f"{role.replace('-', '_')}_{verb}_{channel.name}"] = operation
    return made


def _named(channel: str, bodies: tuple[Body, ...]) -> list[dict[str, str]]:
    return [{"$ref": f"#/channels/{channel}/messages/{body.name}"} for body in bodies]


def _message(body: Body) -> dict[str, Any]:
    is_model = isinstance(body.schema, type)
    payload = {"$ref": _REF.format(model=body.schema.__name__)} if isinstance(body.schema, type) else body.schema
    made: dict[str, Any] = {"name": body.name, "contentType": body.content, "payload": payload}
    if body.summary or is_model:
        made["summary"] = body.summary or (body.schema.__doc__ or "").partition("\n")[0]
    if body.headers:
        properties = {name: {"type": "string", "description": meaning} for name, meaning in body.headers.items()}
        made["headers"] = {"type": "object", "properties": properties}
    return made


def _schemas(models: list[type[BaseModel]]) -> dict[str, Any]:
    """Return the JSON Schema of every model and of the models inside them."""
    unique = sorted(set(models), key=lambda model: model.__name__)
    _, found = models_json_schema([(model, "validation") for model in unique], ref_template=_REF)
    return {name: _plain(schema) for name, schema in sorted(found["$defs"].items())}


def _plain(schema: Any) -> Any:
    """Return a schema without OpenAPI's `discriminator`, which AsyncAPI only knows as a string.

    Each member of a union has a constant `type` or `kind`.
    """
    if isinstance(schema, dict):
        is_union = isinstance(schema.get("discriminator"), dict) and "propertyName" in schema["discriminator"]
        return {name: _plain(value) for name, value in schema.items() if not (is_union and name == "discriminator")}
    return [_plain(value) for value in schema] if isinstance(schema, list) else schema
