// Follows one run, live: node dist/watch.js <run id> [tenant]. Prints an event a line and ends with the run.
//
// Only the run's republished subjects and reading back are used: no consumer, no state on the server. The two subjects of a run, `log`
// (facts) and `stream` (tokens, progress), have a cursor each. A gap shows in `Nats-Last-Sequence` and is read back before anything
// after it is shown; a lost last message shows in the look at the tail that follows a quiet while, a reconnect, and the end of the run.

import { setTimeout } from "node:timers/promises";
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { connected } from "./connection.js";

type Kind = "log" | "stream";
type Event = { type: string } & Record<string, unknown>;

interface Stored {
  kind: Kind;
  sequence: number;
  /** Sequence of the message before it on the same subject; only live messages know it. */
  previous: number;
  events: Event[];
}

const QUIET_MS = 3000;
const PAGE = 500;
const PAGE_BYTES = 4 << 20;
const KINDS: Kind[] = ["log", "stream"];
const TERMINAL = new Set(["done", "error", "cancelled"]);

function stored(message: Msg, subject: string): Stored {
  const number = (header: string) => Number(message.headers?.get(header) || 0);
  return {
    kind: subject.endsWith(".log") ? "log" : "stream",
    sequence: number("Nats-Sequence"),
    previous: number("Nats-Last-Sequence"),
    events: message.json<{ events: Event[] }>().events,
  };
}

/** Reads everything on an exact subject after a sequence (batched direct get, ADR-31). */
async function readBack(nc: NatsConnection, subject: string, after: number): Promise<Stored[]> {
  const found: Stored[] = [];
  for (let left = Infinity; left > 0; ) {
    const start = (found.at(-1)?.sequence ?? after) + 1;
    const request = JSON.stringify({ batch: PAGE, seq: start, next_by_subj: subject, max_bytes: PAGE_BYTES });
    let end: Msg | undefined;
    for await (const message of await nc.requestMany("$JS.API.DIRECT.GET.RUNS", request, { strategy: "sentinel", maxWait: 5000 })) {
      if (message.data.length === 0) {
        end = message;
      } else {
        found.push(stored(message, subject));
      }
    }
    if (end === undefined) {
      throw new Error(`no answer from the stream RUNS about ${subject}`);
    }
    // 404: nothing there. 204: the end of a page, with the number of messages after it.
    left = end.headers?.code === 404 ? 0 : Number(end.headers?.get("Nats-Num-Pending") || 0);
  }
  return found;
}

class Watcher {
  private readonly at: Record<Kind, number> = { log: 0, stream: 0 };
  private readonly live: Stored[] = [];
  private stale = true;
  private wake: () => void = () => undefined;
  private ended = false;

  constructor(
    private readonly nc: NatsConnection,
    private readonly tenant: string,
    private readonly run: string,
  ) {}

  async follow(): Promise<void> {
    this.nc.subscribe(`run.${this.tenant}.${this.run}.*`, {
      callback: (error, message) => {
        // Without the header it is no republished copy: somebody wrote to the live subject directly.
        if (!error && message.headers?.has("Nats-Sequence")) {
          this.live.push(stored(message, message.subject));
          this.wake();
        }
      },
    });
    void this.watchConnection();
    while (!this.ended) {
      const next = this.live.shift();
      if (this.stale || (next && this.mustReadBack(next))) {
        await this.catchUp(next).catch((error: unknown) => this.later(next, error));
      } else if (next) {
        this.show([next]);
      } else {
        this.stale = !(await this.something());
      }
    }
  }

  private async watchConnection(): Promise<void> {
    for await (const status of this.nc.status()) {
      if (status.type === "reconnect") {
        this.stale = true;
        this.wake();
      }
    }
  }

  /** Waits for a live message; false after a quiet while. */
  private something(): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = globalThis.setTimeout(() => resolve(this.live.length > 0), QUIET_MS);
      this.wake = () => {
        clearTimeout(timer);
        resolve(!this.stale);
      };
    });
  }

  private mustReadBack(next: Stored): boolean {
    return next.previous > this.at[next.kind] || next.events.some((event) => TERMINAL.has(event.type));
  }

  /** Reads both subjects back and merges them with what came live meanwhile. */
  private async catchUp(next: Stored | undefined): Promise<void> {
    this.stale = false;
    await this.nc.flush();
    const parts = await Promise.all(KINDS.map((kind) => readBack(this.nc, `emit.${this.tenant}.${this.run}.${kind}`, this.at[kind])));
    await this.nc.flush();
    const found = [...parts.flat(), ...this.live.splice(0), ...(next ? [next] : [])];
    this.show(found.sort((a, b) => a.sequence - b.sequence));
  }

  /** The server is unavailable: nothing is lost, it is read back once the server answers. */
  private async later(next: Stored | undefined, error: unknown): Promise<void> {
    console.error(`reading back: ${error}`);
    this.live.unshift(...(next ? [next] : []));
    this.stale = true;
    await setTimeout(QUIET_MS);
  }

  private show(found: Stored[]): void {
    for (const { kind, sequence, events } of found) {
      if (this.ended || sequence <= this.at[kind]) {
        continue;
      }
      this.at[kind] = sequence;
      for (const event of events) {
        console.log(`${kind} ${sequence} ${event.type} ${JSON.stringify(event)}`);
        this.ended ||= TERMINAL.has(event.type);
      }
    }
  }
}

const [run, tenant = "default"] = process.argv.slice(2);
if (!run || !/^[0-9a-f]{32}$/.test(run) || !/^[a-z0-9_-]{1,64}$/.test(tenant)) {
  console.error("usage: node dist/watch.js <run id> [tenant]");
  process.exit(2);
}
const nc = await connected("watch");
await new Watcher(nc, tenant, run).follow();
await nc.close();
