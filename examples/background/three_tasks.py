"""Background tasks: ask for three at once, and print the one report that follows the answer."""

import asyncio
import os
import sys
from uuid import uuid4

from runwire import Client
from runwire.events import RunQueued, TaskEnded, TaskSpawned

QUESTION = "In the background: What is 17*23? What is 6*7? What is 2+2?"


async def main(question: str) -> None:
    """The answer comes at once. What happens after it is on the stream of the session."""
    url, key = os.environ.get("RUNWIRE_URL", "http://127.0.0.1:8080"), os.environ.get("RUNWIRE_API_KEY")
    session = f"example-{uuid4().hex[:12]}"
    async with Client(url, key) as client:
        answered = await client.chat(question, session_id=session)
        print(answered.payload.raw_answer if answered.payload else answered.code)
        async for event in client.session_events(session):
            match event:
                case TaskSpawned():
                    print(f"spawned: {event.query}")
                case TaskEnded():
                    print(f"{event.outcome}: {event.digest}")
                case RunQueued(cause="report"):
                    report = await client.result(event.run)
                    print(report.payload.raw_answer if report.payload else report.code)
                    break


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else QUESTION))
