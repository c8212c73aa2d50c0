// A tool that asks a person in the middle of a call. No process waits for the answer.

import type { Context, ToolSpec } from "./protocol.js";
import { run } from "./run.js";

const SPEC: ToolSpec = {
  name: "book_seat",
  description: "Book a seat on a flight. A person chooses the seat",
  input_schema: { type: "object", properties: { flight: { type: "string" } }, required: ["flight"] },
  side_effects: "external",
};
const SEAT = { type: "string", pattern: "^[0-9]{1,2}[A-F]$" };

async function bookSeat(args: Record<string, unknown>, context: Context): Promise<unknown> {
  // The function runs again when there is an answer. What it must not do twice, it notes in the state.
  context.state["offer"] ??= `offer of ${context.call.idempotency_key}`;
  const seat = context.pause({ title: `Which seat on ${args["flight"]}?`, input_schema: SEAT });
  return { answer: `${args["flight"]}: seat ${seat} is booked`, by: context.state["offer"] };
}

await run(SPEC, bookSeat);
