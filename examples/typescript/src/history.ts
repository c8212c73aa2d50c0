// Reads the stored records of a run from the gateway, as Server-Sent Events.

import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import type { Cursors, Event, Kind, Stored } from "./record.js";

/** The gateway does not know the run, or does not take the key: another attempt ends the same way. */
export class HistoryRefused extends Error {}

export type ReadHistory = (at: Cursors, until: Partial<Cursors>) => AsyncGenerator<Stored>;

/** Takes RUNWIRE_URL and RUNWIRE_API_KEY; undefined when neither is set. */
export function historyOf(run: string): ReadHistory | undefined {
  const { RUNWIRE_URL: url, RUNWIRE_API_KEY: key } = process.env;
  if (!url && !key) {
    return undefined;
  }
  const events = `${(url || "http://127.0.0.1:8080").replace(/\/+$/, "")}/v1/runs/${run}/events`;
  return (at, until) => read(events, key, at, until);
}

/** Yields the records after the cursors `at`, in order, until both have reached `until`, or the run has ended. */
async function* read(url: string, key: string | undefined, at: Cursors, until: Partial<Cursors>): AsyncGenerator<Stored> {
  const cursors = { ...at };
  const response = await fetch(url, {
    headers: { "Last-Event-ID": `${at.log}-${at.stream}`, ...(key ? { Authorization: `Bearer ${key}` } : {}) },
  });
  if (response.status !== 200 || response.body === null) {
    const refused = response.status >= 400 && response.status < 500 && response.status !== 429;
    throw new (refused ? HistoryRefused : Error)(`the gateway answers ${response.status}`);
  }
  let events: Event[] = []; // Of the record that is being read: its last event has the id.
  const body = Readable.fromWeb(response.body as ReadableStream);
  for await (const line of createInterface({ input: body, crlfDelay: Infinity })) {
    if (line.startsWith("data: ")) {
      events.push(JSON.parse(line.slice(6)) as Event);
    } else if (line.startsWith("id: ")) {
      // The cursors after the record; the one that has moved is its own.
      const [log, stream] = line.slice(4).split("-").map(Number) as [number, number];
      const kind: Kind = log > cursors.log ? "log" : "stream";
      Object.assign(cursors, { log, stream });
      yield { kind, sequence: cursors[kind], previous: 0, events };
      events = [];
      if (log >= (until.log ?? 0) && stream >= (until.stream ?? 0)) {
        return;
      }
    }
  }
}
