// Reads the events of a run or session and survives what happens to connections.
//
// Rule 1: what is given on is a whole record of the log: its events come together, and the last one has the id. A record that was broken
// off is read again from its first event, so no event comes twice and none is lost.
// Rule 2: a terminal event or 204 ends the stream, and so does a refusal that waiting does not mend. Everything else is a lost connection,
// and the stream goes on after the last id.
// Rule 3: a connection without a byte for 45 seconds is dead: the gateway sends a comment every 15. Where there is a page, it is judged
// again whenever the page is shown or the network is back, since timers stand still while a laptop sleeps.

import { createParser } from "eventsource-parser";
import { Problem } from "./errors.js";

const TERMINAL = new Set(["done", "error", "cancelled", "deleted", "session_deleted"]);
const SILENCE_MS = 45_000;
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 15_000;
const WAKING = ["online", "pageshow", "visibilitychange"];

export interface EventRecord<Event> {
  /** To continue after this record. */
  readonly id: string;
  readonly events: readonly Event[];
}

/** `open`: the gateway answers. `lost`: the connection is being made again. */
export type Link = "open" | "lost";

export interface FollowOptions {
  /** Continue after this record. */
  readonly lastEventId?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onLink?: ((link: Link) => void) | undefined;
}

type Open = (lastEventId: string, signal: AbortSignal) => Promise<Response>;

/** Gives the records of a stream that `open` opens. Ends with the run; throws Problem for a refusal that stays. */
export async function* follow<Event extends { type: string }>(
  open: Open,
  { lastEventId = "", signal, onLink }: FollowOptions = {},
  parse: (text: string) => unknown = JSON.parse,
): AsyncGenerator<EventRecord<Event>, void, undefined> {
  let last = lastEventId;
  for (let failures = 0; !signal?.aborted; failures += 1) {
    let waitMs = Math.min(FIRST_WAIT_MS * 2 ** failures, LONGEST_WAIT_MS) * (0.75 + Math.random() / 4);
    const connection = new AbortController();
    let heardAt = Date.now();
    const unwatch = watch(signal, () => {
      if (signal?.aborted || Date.now() - heardAt > SILENCE_MS) connection.abort();
    });
    try {
      const response = await open(last, connection.signal);
      if (response.status === 204) return;
      if (!response.ok) throw await Problem.of(response);
      onLink?.("open");
      for await (const record of records<Event>(response, parse, () => (heardAt = Date.now()))) {
        failures = 0;
        last = record.id;
        yield record;
        if (record.events.some((event) => TERMINAL.has(event.type))) return;
      }
    } catch (error) {
      if (error instanceof Problem) {
        if (!error.isTemporary) throw error;
        waitMs = Math.max(waitMs, (error.retryAfterS ?? 0) * 1000);
      }
    } finally {
      unwatch();
      connection.abort();
    }
    if (signal?.aborted) return;
    onLink?.("lost");
    await pause(waitMs, signal);
  }
}

async function* records<Event>(response: Response, parse: (text: string) => unknown, heard: () => void): AsyncGenerator<EventRecord<Event>> {
  const ready: EventRecord<Event>[] = [];
  let events: Event[] = [];
  const parser = createParser({
    onEvent({ id, data }) {
      events.push(parse(data) as Event);
      if (id !== undefined) {
        ready.push({ id, events });
        events = [];
      }
    },
  });
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  for (let read = await reader?.read(); read && !read.done; read = await reader?.read()) {
    heard();
    parser.feed(decoder.decode(read.value, { stream: true }));
    yield* ready.splice(0);
  }
}

/** Calls `check` every five seconds, when `signal` aborts, and when a page wakes up; returns what ends that. */
function watch(signal: AbortSignal | undefined, check: () => void): () => void {
  const targets = typeof document === "undefined" ? [] : [window, document];
  const timer = setInterval(check, 5_000);
  signal?.addEventListener("abort", check);
  for (const target of targets) for (const name of WAKING) target.addEventListener(name, check);
  check();
  return () => {
    clearInterval(timer);
    signal?.removeEventListener("abort", check);
    for (const target of targets) for (const name of WAKING) target.removeEventListener(name, check);
  };
}

/** Waits, but no longer than until a page wakes up or `signal` aborts. */
function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const begun = Date.now();
    let unwatch: () => void = () => undefined;
    const end = () => {
      clearTimeout(timer);
      unwatch();
      resolve();
    };
    const timer = setTimeout(end, ms);
    const woken = () => {
      if (signal?.aborted || Date.now() - begun > FIRST_WAIT_MS) end();
    };
    unwatch = watch(signal, woken);
  });
}
