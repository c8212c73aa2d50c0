"""A client: ask a question, watch what happens, print the answer. `python client.py "What is 17*23?"`."""

import asyncio
import os
import sys

from runwire import Client
from runwire.events import Chunk, Observed


async def main(question: str) -> None:
    """Follow one run from its question to its end, whatever happens to the connection meanwhile."""
    url, key = os.environ.get("RUNWIRE_URL", "http://127.0.0.1:8080"), os.environ.get("RUNWIRE_API_KEY")
    async with Client(url, key) as client:
        run_id = await client.start(question)
        async for event in client.follow(run_id):
            match event:
                case Observed():
                    print(f"{event.tool}: {event.status}")
                case Chunk():
                    print(event.text, end="", flush=True)
    print()


asyncio.run(main(sys.argv[1]))
