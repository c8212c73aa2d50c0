// A tool that asks a person in the middle of a call. No process waits for the answer.

import { main, tool } from "@runwire/sdk/tools";
import { z } from "zod";

const SEAT = { type: "string", pattern: "^[0-9]{1,2}[A-F]$" };

const bookSeat = tool(
  {
    name: "book_seat",
    description: "Book a seat on a flight. A person chooses the seat",
    args: z.object({ flight: z.string() }),
    side_effects: "external",
  },
  ({ flight }, context) => {
    // The function runs again when there is an answer. What it must not do twice, it notes in the state.
    context.state["offer"] ??= `offer of ${context.call.idempotency_key}`;
    const seat = context.pause({ title: `Which seat on ${flight}?`, input_schema: SEAT });
    return { answer: `${flight}: seat ${seat} is booked`, by: context.state["offer"] };
  },
);

await main(bookSeat);
