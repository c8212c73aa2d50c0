"""A nightly run: add the schedule once, then print the next times and what the newest night has answered."""

import asyncio
import os

from runwire import Client

QUESTION = "Which region grew most in sales.csv? Draw a chart."


async def main() -> None:
    """The key makes sure that there is one schedule, however often this program is started."""
    url, key = os.environ.get("RUNWIRE_URL", "http://127.0.0.1:8080"), os.environ.get("RUNWIRE_API_KEY")
    async with Client(url, key) as client:
        made = await client.add_schedule(
            QUESTION, cron="30 2 * * *", time_zone="Europe/Berlin", missed="run_once", idempotency_key="nightly"
        )
        print("next:", ", ".join(made.next))
        if made.last_run:
            run = await client.result(made.last_run)
            print(f"{made.last}:", run.payload.raw_answer if run.payload else run.code)


asyncio.run(main())
