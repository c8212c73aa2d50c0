// Follows runs live over NATS, with the rights of a listener: the live subjects, and the last record of a run's log. It holds no state on
// the server.
//
// The two subjects of a run, `log` (facts) and `stream` (tokens, progress), have a cursor each. A gap shows in `Nats-Last-Sequence`; a
// lost last record shows when the log is checked, after a quiet while and after a reconnect. What was missed is read from the gateway, where
// there is one. Otherwise it is named, and the last record of the log is given: how the run stands.

import type { NatsConnection } from "@nats-io/transport-node";
import { Client, type ClientOptions } from "../client.js";
import { closed } from "../connection.js";
import type { Paused } from "../contracts.js";
import { Problem } from "../errors.js";
import { isTerminal, type Kind, type Live, type RunRecord, stored } from "./record.js";

const QUIET_MS = 3000;

export interface Gateway {
  /** Where to read what was missed. By default what RUNWIRE_URL and RUNWIRE_API_KEY say, if either is set. */
  readonly gateway?: ClientOptions | undefined;
  readonly warn?: (text: string) => void;
}

/** Gives each record of a run in order, until the run has ended. Throws when the connection is closed for good. */
export function follow(nc: NatsConnection, tenant: string, run: string, options: Gateway = {}): AsyncGenerator<RunRecord, void> {
  return new Follower(nc, tenant, run, options).records();
}

/** What the runs of a tenant ask of people from now on; `token` says what a person was shown, and a decision repeats it. */
export async function pauses(nc: NatsConnection, tenant: string): Promise<AsyncIterable<Paused & { run_id: string }>> {
  const messages = nc.subscribe(`run.${tenant}.*.log`);
  await nc.flush();
  return (async function* () {
    for await (const message of messages) {
      for (const event of stored(message)?.events ?? []) {
        if (event.type === "paused" && event.pause_id) yield { ...(event as Paused), run_id: message.subject.split(".")[2]! };
      }
    }
  })();
}

class Follower {
  private readonly at: Record<Kind, number> = { log: 0, stream: 0 };
  private readonly live: Live[] = [];
  private readonly warn: (text: string) => void;
  private history: Client | undefined;
  private stale = true;
  private wake: () => void = () => undefined;
  private ended = false;
  private gone = false;

  constructor(
    private readonly nc: NatsConnection,
    private readonly tenant: string,
    private readonly run: string,
    { gateway = gatewayOf(process.env), warn = console.error }: Gateway,
  ) {
    this.history = gateway && new Client(gateway);
    this.warn = warn;
  }

  async *records(): AsyncGenerator<RunRecord, void> {
    let denied: Error | undefined;
    const subscription = this.nc.subscribe(`run.${this.tenant}.${this.run}.*`, {
      callback: (error, message) => {
        denied ??= error ?? undefined;
        const next = error ? undefined : stored(message);
        if (next) {
          this.live.push(next);
          this.wake();
        }
      },
    });
    try {
      await this.nc.flush();
      if (denied) {
        const remedy = `"runwire credentials listener ${this.tenant}" gives a credential for the runs of this tenant`;
        throw new Error(`${(denied as Error).message}: ${remedy}`, { cause: denied });
      }
      void this.watchConnection();
      while (!this.ended && !this.gone) {
        const next = this.live.shift();
        if (next) {
          yield* this.received(next);
        } else if (this.stale) {
          this.stale = false;
          yield* this.fromLog();
        } else {
          this.stale = !(await this.something());
        }
      }
    } finally {
      subscription.unsubscribe();
    }
    if (!this.ended) await closed(this.nc);
  }

  private async watchConnection(): Promise<void> {
    for await (const status of this.nc.status()) {
      if (status.type === "reconnect") {
        this.stale = true;
        this.wake();
      }
    }
    this.gone = true;
    this.wake();
  }

  /** Waits for a live record; false after a quiet while. */
  private something(): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(this.live.length > 0), QUIET_MS);
      this.wake = () => {
        clearTimeout(timer);
        resolve(!this.stale);
      };
    });
  }

  /** A live record, after what was missed before it. */
  private async *received(next: Live): AsyncGenerator<RunRecord> {
    if (next.previous > this.at[next.kind]) {
      yield* this.missed(next.kind, next.previous);
    }
    if (isTerminal(next) && this.history) {
      yield* this.missed(next.kind, next.sequence); // The last tokens have no successor that would show a gap.
    }
    yield* this.passed(next);
  }

  /** What the log has and this follower lacks. */
  private async *fromLog(): AsyncGenerator<RunRecord> {
    const subject = `$JS.API.DIRECT.GET.RUNS.emit.${this.tenant}.${this.run}.log`;
    const answer = await this.nc.request(subject, "", { timeout: QUIET_MS }).catch((error: Error) => {
      this.warn(`the log cannot be checked: ${error.message}`);
    });
    for (let next = this.live.shift(); next; next = this.live.shift()) {
      yield* this.received(next); // It was sent before the answer.
    }
    const last = answer && stored(answer);
    if (last && last.sequence > this.at.log) {
      yield* this.missed("log", last.sequence);
      yield* this.passed(last);
    }
  }

  /** What is stored up to this sequence of a subject; waits for as long as the gateway is unavailable. */
  private async *missed(kind: Kind, sequence: number): AsyncGenerator<RunRecord> {
    const onLink = (link: string) => link === "lost" && this.warn("the gateway is lost: what is stored is read when it is back");
    const lastEventId = `${this.at.log}-${this.at.stream}`;
    try {
      for await (const { id, events } of this.history?.events(this.run, { lastEventId, onLink }) ?? []) {
        // The cursors after the record; the one that has moved is its own.
        const [log, stream] = id.split("-").map(Number) as [number, number];
        yield* this.passed(log > this.at.log ? { kind: "log", sequence: log, events } : { kind: "stream", sequence: stream, events });
        if (this.at[kind] >= sequence) return;
      }
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.warn(`reading what is stored: ${error.detail}`);
      this.history = undefined;
    }
    if (this.at[kind] < sequence && !this.ended) {
      this.warn(`earlier events of the ${kind} may be missing, before number ${sequence}: set RUNWIRE_URL and RUNWIRE_API_KEY to see them`);
    }
  }

  private *passed(one: RunRecord): Generator<RunRecord> {
    if (this.ended || one.sequence <= this.at[one.kind]) {
      return;
    }
    this.at[one.kind] = one.sequence;
    this.ended = isTerminal(one);
    yield one;
  }
}

function gatewayOf({ RUNWIRE_URL: url, RUNWIRE_API_KEY: key }: NodeJS.ProcessEnv): ClientOptions | undefined {
  return url || key ? { url: url || "http://127.0.0.1:8080", key: key || undefined } : undefined;
}
