"""A whole tool without any SDK: it answers a NATS request, and its metadata says what it takes.

Run it: python plain_nats_tool.py. It takes the first of: a credential file (RUNWIRE_NATS_CREDENTIALS),
RUNWIRE_NATS_URL, NATS_URL, and nats://127.0.0.1:4222.

Enough for quick, harmless calls. What the SDK adds: checked arguments, calls at once, heartbeats, joining of repeated
calls, cancelling.
"""

import asyncio
import datetime as dt
import json
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
from nats.micro import add_service
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, ServiceConfig

Answer = Callable[[Request], Awaitable[None]]
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


def login() -> dict[str, Any]:
    """Where NATS is, and as whom. A credential file is JSON; a URL may hold user and password."""
    env = os.environ.get
    if file := env("RUNWIRE_NATS_CREDENTIALS"):
        try:
            found = {"ca": None, **json.loads(Path(file).read_text(encoding="utf-8"))}
            ca = found["ca"] and Path(file).parent / found["ca"]
            url, user, password = found["url"], found["user"], found["password"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            sys.exit(f"{file} is no credential file: {type(error).__name__}")
    else:
        url = env("RUNWIRE_NATS_URL") or env("NATS_URL") or "nats://127.0.0.1:4222"
        user, password, ca = env("RUNWIRE_NATS_USER"), env("RUNWIRE_NATS_PASSWORD"), env("RUNWIRE_NATS_CA")
    tls = ssl.create_default_context(cafile=ca) if ca else None
    return {"servers": url.split(","), "user": user, "password": password, "tls": tls}


async def serve(spec: dict[str, Any], answer: Answer, **callbacks: Any) -> None:
    """Connect, announce the tool, and answer."""
    client = await nats.connect(**login(), **callbacks, max_reconnect_attempts=-1)
    name = spec["name"]
    service = await add_service(client, ServiceConfig(name=name, version="1.0.0", description=spec["description"]))
    metadata = {"runwire.spec": json.dumps(spec)}
    await service.add_endpoint(
        EndpointConfig(name, answer, subject=f"tool.{name}", queue_group=name, metadata=metadata)
    )
    await service.stopped.wait()


async def main(spec: dict[str, Any], answer: Answer) -> None:
    """Serve until NATS refuses the login, or denies the tool to it: another attempt does not mend that."""
    refused: asyncio.Queue[str] = asyncio.Queue()

    async def on_error(error: Exception) -> None:
        print(error, file=sys.stderr)
        if "violation" in str(error).lower():
            await refused.put(str(error))

    async def on_closed() -> None:
        await refused.put("NATS has closed the connection")

    serving = asyncio.create_task(serve(spec, answer, error_cb=on_error, closed_cb=on_closed))
    ended = asyncio.create_task(refused.get())
    await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    sys.exit(f"{ended.result()}: `runwire credentials tool {spec['name']}` gives a credential that may serve the tool")


if __name__ == "__main__":
    asyncio.run(main(SPEC, weekday))
