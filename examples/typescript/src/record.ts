// The stored records of a run, as they come over NATS.

import type { Msg } from "@nats-io/transport-node";

export type Kind = "log" | "stream";
export type Event = { type: string } & Record<string, unknown>;
/** The sequence of the last record of each subject. */
export type Cursors = Record<Kind, number>;

export interface Stored {
  kind: Kind;
  sequence: number;
  /** Sequence of the message before it on the same subject; only live messages know it. */
  previous: number;
  events: Event[];
}

const TERMINAL = new Set(["done", "error", "cancelled"]);

export function isTerminal({ events }: Stored): boolean {
  return events.some(({ type }) => TERMINAL.has(type));
}

/**
 * Undefined for what is no stored record, as when somebody writes to the live subject directly. What was stored once, read, and published
 * again has the header Nats-Subject twice.
 */
export function stored(message: Msg): Stored | undefined {
  const subjects = message.headers?.values("Nats-Subject") ?? [];
  if (subjects.length !== 1) {
    return undefined;
  }
  const number = (header: string) => Number(message.headers?.get(header) || 0);
  return {
    kind: subjects[0]!.endsWith(".log") ? "log" : "stream",
    sequence: number("Nats-Sequence"),
    previous: number("Nats-Last-Sequence"),
    events: message.json<{ events: Event[] }>().events,
  };
}
