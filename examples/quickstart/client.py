"""A client: ask a question, watch what happens, print the answer. `python client.py "What is 17*23?"`."""

import asyncio
import os
import sys

from runwire import Client


async def main(question: str) -> None:
    """Follow one run from its question to its end, whatever happens to the connection meanwhile."""
    url, key = os.environ.get("RUNWIRE_URL", "http://127.0.0.1:8080"), os.environ.get("RUNWIRE_API_KEY")
    async with Client(url, key) as client:
        run_id = await client.start(question)
        async for event in client.follow(run_id):
            if event.type not in {"chunk", "thinking"}:  # Of these there is one for every few characters.
                print(event.type)
        run = await client.status(run_id)
        print(run.payload.raw_answer if run.payload else run.status)


asyncio.run(main(sys.argv[1]))
