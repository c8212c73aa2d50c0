"""A tool without the SDK: a plain subscriber that gives back what came in: `python -m benchmarks.plain_tool NAME`."""

import asyncio
import os
import sys

import orjson
import uvloop
from nats.aio.msg import Msg

from benchmarks import raw_nats
from contracts.wire import subjects


async def main(name: str, url: str) -> None:
    """Serve until killed."""
    client = await raw_nats.connect(url)

    async def answer(message: Msg) -> None:
        await message.respond(orjson.dumps(orjson.loads(message.data)["args"]))

    await client.subscribe(subjects.tool(name), queue=name, cb=answer)
    await raw_nats.Parts(client, raw_nats.APART).barrier()
    print(raw_nats.SIGN.decode(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], os.environ["RUNWIRE_NATS_URL"]))
