"""A tool without any SDK that asks a person in the middle of a call. No process waits for the answer.

Run it: python plain_asking_tool.py, with the login that plain_nats_tool.py takes.
"""

import asyncio
import json

from nats.micro.request import Request
from plain_nats_tool import main  # type: ignore[import-not-found]  # the file beside this one

SPEC = {
    "name": "book_seat",
    "description": "Book a seat on a flight. A person chooses the seat",
    "input_schema": {"type": "object", "properties": {"flight": {"type": "string"}}, "required": ["flight"]},
    "side_effects": "external",
}
SEAT = {"type": "string", "pattern": "^[0-9]{1,2}[A-F]$"}


async def book_seat(request: Request) -> None:
    """In the first round ask, in the second one book. What the first one did is kept in `state`."""
    call = json.loads(request.data)
    flight = call["args"]["flight"]
    if not call["answers"]:
        state = {"offer": f"offer of {call['idempotency_key']}"}
        pause = {"number": 0, "title": f"Which seat on {flight}?", "input_schema": SEAT, "state": state}
        await request.respond(json.dumps(pause).encode(), {"Runwire-Reply": "pause"})
        return
    answer = call["answers"][0]
    if answer["decision"] == "reject":
        failure = {"reason": f"a person said no: {answer['note']}", "code": "rejected"}
        await request.respond(json.dumps(failure).encode(), {"Runwire-Reply": "failure"})
        return
    booked = {"answer": f"{flight}: seat {answer['input']} is booked", "by": call["state"]["offer"]}
    await request.respond(json.dumps(booked).encode())


if __name__ == "__main__":
    asyncio.run(main(SPEC, book_seat))
