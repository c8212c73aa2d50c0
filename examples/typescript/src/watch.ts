// Follows one run, live: node dist/watch.js <run id> [tenant]. Prints an event a line and ends with the run. It needs the rights of a
// listener: the live subjects, and the last record of the log. It holds no state on the server.
//
// The two subjects of a run, `log` (facts) and `stream` (tokens, progress), have a cursor each. A gap shows in `Nats-Last-Sequence`; a
// lost last record shows when the log is checked, after a quiet while and after a reconnect. What was missed is read from the gateway, where
// RUNWIRE_URL or RUNWIRE_API_KEY is set. Otherwise it is named, and the last record of the log is shown: how the run stands.

import { setTimeout } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { closed, connected } from "./connection.js";
import { HistoryRefused, historyOf } from "./history.js";
import { type Cursors, isTerminal, type Kind, type Stored, stored } from "./record.js";

const QUIET_MS = 3000;

class Watcher {
  private readonly at: Cursors = { log: 0, stream: 0 };
  private readonly live: Stored[] = [];
  private history;
  private stale = true;
  private wake: () => void = () => undefined;
  private ended = false;

  constructor(
    private readonly nc: NatsConnection,
    private readonly tenant: string,
    private readonly run: string,
  ) {
    this.history = historyOf(run);
  }

  async follow(): Promise<void> {
    let denied: Error | undefined;
    this.nc.subscribe(`run.${this.tenant}.${this.run}.*`, {
      callback: (error, message) => {
        denied ??= error ?? undefined;
        const next = error ? undefined : stored(message);
        if (next) {
          this.live.push(next);
          this.wake();
        }
      },
    });
    await this.nc.flush();
    if (denied) {
      const remedy = `"runwire credentials listener ${this.tenant}" gives a credential for the runs of this tenant`;
      throw new Error(`${denied.message}: ${remedy}`, { cause: denied });
    }
    void this.watchConnection();
    while (!this.ended) {
      const next = this.live.shift();
      if (next) {
        await this.receive(next);
      } else if (this.stale) {
        this.stale = false;
        await this.checkLog();
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

  /** Waits for a live record; false after a quiet while. */
  private something(): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = globalThis.setTimeout(() => resolve(this.live.length > 0), QUIET_MS);
      this.wake = () => {
        clearTimeout(timer);
        resolve(!this.stale);
      };
    });
  }

  /** Shows a live record, after what was missed before it. */
  private async receive(next: Stored): Promise<void> {
    if (next.previous > this.at[next.kind]) {
      await this.catchUp(next.kind, next.previous);
    }
    if (isTerminal(next) && this.history) {
      await this.catchUp(next.kind, next.sequence); // The last tokens have no successor that would show a gap.
    }
    this.show(next);
  }

  /** Shows what the log has and this watcher lacks. */
  private async checkLog(): Promise<void> {
    const subject = `$JS.API.DIRECT.GET.RUNS.emit.${this.tenant}.${this.run}.log`;
    const answer = await this.nc.request(subject, "", { timeout: QUIET_MS }).catch((error: Error) => {
      console.error(`the log cannot be checked: ${error.message}`);
    });
    for (let next = this.live.shift(); next; next = this.live.shift()) {
      await this.receive(next); // It was sent before the answer.
    }
    const last = answer && stored(answer);
    if (last && last.sequence > this.at.log) {
      await this.catchUp("log", last.sequence);
      this.show(last);
    }
  }

  /** Shows what is stored up to this sequence of a subject, for as long as the gateway is unavailable. */
  private async catchUp(kind: Kind, sequence: number): Promise<void> {
    while (this.history && this.at[kind] < sequence && !this.ended) {
      try {
        for await (const one of this.history(this.at, { [kind]: sequence })) {
          this.show(one);
        }
      } catch (error) {
        console.error(`reading what is stored: ${(error as Error).message}`);
        if (error instanceof HistoryRefused) {
          this.history = undefined;
        }
        await setTimeout(QUIET_MS / 10);
      }
    }
    if (this.at[kind] < sequence && !this.ended) {
      console.error(`earlier events of the ${kind} may be missing, before number ${sequence}: set RUNWIRE_URL and RUNWIRE_API_KEY to see them`);
    }
  }

  private show(one: Stored): void {
    if (this.ended || one.sequence <= this.at[one.kind]) {
      return;
    }
    this.at[one.kind] = one.sequence;
    this.ended = isTerminal(one);
    for (const event of one.events) {
      console.log(`${one.kind} ${one.sequence} ${event.type} ${JSON.stringify(event)}`);
    }
  }
}

const [run, tenant = "default"] = process.argv.slice(2);
if (!run || !/^[0-9a-f]{32}$/.test(run) || !/^[a-z0-9_-]{1,64}$/.test(tenant)) {
  console.error("usage: node dist/watch.js <run id> [tenant]");
  process.exit(2);
}

async function main(run: string): Promise<void> {
  const nc = await connected("watch");
  await Promise.race([new Watcher(nc, tenant, run).follow(), closed(nc)]);
  await nc.close();
}

await main(run).catch((error: Error) => {
  console.error(error.message);
  process.exit(1);
});
