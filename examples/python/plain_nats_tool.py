"""A whole tool without any SDK: it answers a NATS request, and its metadata says what it takes.

Run it: python plain_nats_tool.py.

Enough for quick, harmless calls. What the SDK adds: checked arguments, calls at once, heartbeats, joining of repeated
calls, cancelling.
"""

import asyncio
import datetime as dt
import json
import os

import nats
from nats.micro import add_service
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, ServiceConfig

ARGUMENTS = {"type": "object", "properties": {"date": {"type": "string", "format": "date"}}, "required": ["date"]}
SPEC = {
    "name": "weekday",
    "description": "The day of the week of a date (YYYY-MM-DD)",
    "input_schema": ARGUMENTS,
    "idempotent": True,
}


async def weekday(request: Request) -> None:
    """Read the arguments, reply with any JSON; a failure is a reply whose header says so."""
    try:
        day = dt.date.fromisoformat(json.loads(request.data)["args"]["date"])
        await request.respond(json.dumps({"answer": f"{day} is a {day:%A}"}).encode())
    except (KeyError, TypeError, ValueError) as error:
        await request.respond(
            json.dumps({"reason": f"give a date as 2025-12-31: {error}"}).encode(), {"Runwire-Reply": "failure"}
        )


async def main() -> None:
    """Announce the tool and answer until the connection is closed."""
    client = await nats.connect(
        os.environ.get("RUNWIRE_NATS_URL", "nats://127.0.0.1:4222"),
        user=os.environ.get("RUNWIRE_NATS_USER"),
        password=os.environ.get("RUNWIRE_NATS_PASSWORD"),
        max_reconnect_attempts=-1,
    )
    service = await add_service(client, ServiceConfig(name="weekday", version="1.0.0", description="Days of the week"))
    metadata = {"runwire.spec": json.dumps(SPEC)}
    await service.add_endpoint(
        EndpointConfig("weekday", weekday, subject="tool.weekday", queue_group="weekday", metadata=metadata)
    )
    await service.stopped.wait()


if __name__ == "__main__":
    asyncio.run(main())
