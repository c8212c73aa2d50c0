// The stored records of a run, as they come over NATS.

import type { Msg } from "@nats-io/transport-node";
import type { RunEvent } from "../contracts.js";

export type Kind = "log" | "stream";

export interface RunRecord {
  readonly kind: Kind;
  readonly sequence: number;
  readonly events: readonly RunEvent[];
}

/** A live one also knows the sequence of the record before it on the same subject. */
export type Live = RunRecord & { readonly previous: number };

const TERMINAL = new Set(["done", "error", "cancelled"]);

export function isTerminal({ events }: RunRecord): boolean {
  return events.some(({ type }) => TERMINAL.has(type));
}

/**
 * Undefined for what is no stored record, as when somebody writes to the live subject directly. What was stored once, read, and published
 * again has the header Nats-Subject twice.
 */
export function stored(message: Msg): Live | undefined {
  const subjects = message.headers?.values("Nats-Subject") ?? [];
  if (subjects.length !== 1) {
    return undefined;
  }
  const number = (header: string) => Number(message.headers?.get(header) || 0);
  return {
    kind: subjects[0]!.endsWith(".log") ? "log" : "stream",
    sequence: number("Nats-Sequence"),
    previous: number("Nats-Last-Sequence"),
    events: message.json<{ events: RunEvent[] }>().events,
  };
}
