"""A listener with nothing but a NATS client: the facts of every run of the tenant `default`, as they are stored."""

import asyncio
import json
import os

import nats


async def main() -> None:
    """Print each event. `eval "$(runwire env)"` puts address and login into the environment of a shell."""
    connection = await nats.connect(
        os.environ.get("RUNWIRE_NATS_URL", "nats://127.0.0.1:4222"),
        user=os.environ.get("RUNWIRE_NATS_USER"),
        password=os.environ.get("RUNWIRE_NATS_PASSWORD"),
    )
    records = await connection.subscribe("run.default.*.log")
    print("listening", flush=True)
    async for record in records.messages:
        for event in json.loads(record.data)["events"]:
            print(record.subject, event["type"], flush=True)


asyncio.run(main())
