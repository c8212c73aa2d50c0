"""Approvals: ask, decide about each call that waits for a person, print the answer."""

import asyncio
import os
import sys

from runwire import Client


async def main(question: str) -> None:
    """`chat` and `wait` return when the run has ended, or waits for a person."""
    url, key = os.environ.get("RUNWIRE_URL", "http://127.0.0.1:8080"), os.environ.get("RUNWIRE_API_KEY")
    async with Client(url, key) as client:
        status = await client.chat(question)
        while status.pauses:
            for pause in status.pauses:
                question = f"{pause.tool} {pause.arguments}: approve? [y/n] "
                if await asyncio.to_thread(input, question) == "y":
                    await client.approve(pause)
                else:
                    await client.reject(pause, note="the user does not want it")
            status = await client.wait(status.run_id)
        print(status.payload.raw_answer if status.payload else status.code)


asyncio.run(main(sys.argv[1]))
