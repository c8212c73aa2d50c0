"""A listener with nothing but a NATS client: the facts of every run of a tenant, as they are stored."""

import asyncio
import json
import os
import sys
from pathlib import Path

import nats


async def main(file: str, tenant: str) -> None:
    """Print each event. `runwire credentials listener default --out listener.json` writes the file."""
    credential = json.loads(await asyncio.to_thread(Path(file).read_text))
    user, password = credential["user"], credential["password"]
    connection = await nats.connect(credential["url"], user=user, password=password)
    records = await connection.subscribe(f"run.{tenant}.*.log")
    print("listening", flush=True)
    async for record in records.messages:
        for event in json.loads(record.data)["events"]:
            print(record.subject, event["type"], flush=True)


asyncio.run(main(os.environ.get("RUNWIRE_NATS_CREDENTIALS", "listener.json"), *sys.argv[1:] or ["default"]))
