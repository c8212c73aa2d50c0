// A conversation: the runs of one session, oldest first, each followed once.

import type { Page, RunStatus } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";
import { KINDS, proposalOf, type Proposal } from "../proposals/proposal.svelte";
import { Followed } from "../run/follow.svelte";
import { Background } from "./background.svelte";

const SHOWN = 30;

export class Conversation {
  turns = $state.raw<readonly Followed[]>([]);
  isLoaded = $state(false);

  readonly background: Background;

  /** The newest proposal. While it is open, nothing else is asked. */
  readonly pending: Proposal | undefined = $derived.by(() => {
    const payloads = this.turns.flatMap(({ now }) => (now.hasEnded ? now.payloads : []));
    const newest = payloads.findLast(({ kind }) => KINDS.includes(kind));
    return newest && proposalOf(newest.payload_id);
  });

  constructor(readonly sessionId: string) {
    this.background = new Background(sessionId, () => void this.readRuns());
  }

  get newest(): Followed | undefined {
    return this.turns.at(-1);
  }

  async load(): Promise<void> {
    await this.readRuns();
    await this.background.load();
  }

  /** Reads which runs there are; those that are followed already stay as they are. */
  private async readRuns(): Promise<void> {
    const single = /^run-([0-9a-f]{32})$/.exec(this.sessionId)?.[1];
    const runs: Pick<RunStatus, "run_id" | "query">[] = single
      ? [await gateway.client.run(single)]
      : (await gateway.client.runs({ session_id: this.sessionId, limit: SHOWN })).runs.filter((run) => run.cause === "user" || run.cause === "report");
    const known = new Map(this.turns.map((turn) => [turn.run.id, turn]));
    const older = runs.toReversed().map((run) => known.get(run.run_id) ?? new Followed(run.run_id, run.query));
    const ids = new Set(older.map((turn) => turn.run.id));
    this.turns = [...older, ...this.turns.filter((turn) => !ids.has(turn.run.id))];
    this.isLoaded = true;
  }

  async ask(text: string, images: { artifact_id: string }[] = [], agent = "", page?: Page): Promise<void> {
    const question = { query: text, session_id: this.sessionId, ...(images.length ? { images } : {}), ...(agent ? { agent } : {}), ...(page ? { page } : {}) };
    const { run_id } = await gateway.client.ask(question as never, crypto.randomUUID?.() ?? String(Math.random()));
    if (sessionStorage.getItem(NEXT) === this.sessionId) sessionStorage.removeItem(NEXT);
    this.turns = [...this.turns, new Followed(run_id, text)];
  }

  async stop(): Promise<void> {
    const run = this.newest?.run;
    if (run && !run.hasEnded) await gateway.client.cancel(run.id, "stopped in the playground");
  }

  /** Tells a run something while it works. */
  async steer(text: string): Promise<void> {
    if (this.newest) await gateway.client.input(this.newest.run.id, text);
  }

  close(): void {
    this.background.close();
    for (const turn of this.turns) turn.close();
  }
}

const NEXT = "next session";

/** The id of the conversation that is asked next in this tab; a reload before that changes nothing. */
export function newSessionId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  const id = sessionStorage.getItem(NEXT) ?? `web-${Array.from(bytes, (byte) => byte.toString(36).padStart(2, "0")).join("")}`;
  sessionStorage.setItem(NEXT, id);
  return id;
}
