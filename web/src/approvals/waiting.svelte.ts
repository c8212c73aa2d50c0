// What waits for a person, in all runs that go on: read again every few seconds while the page is seen.

import type { RunStatus, SessionSummary } from "@runwire/client";
import { gateway, said } from "../app/gateway.svelte";
import type { OpenPause } from "../run/fold";

const EVERY_MS = 4_000;

export interface WaitingRun {
  readonly status: RunStatus;
  readonly pauses: readonly OpenPause[];
}

class Waiting {
  runs = $state.raw<readonly WaitingRun[]>([]);
  /** Those whose background tasks have results to apply or reject. */
  sessions = $state.raw<readonly SessionSummary[]>([]);
  /** Ids of sessions in which a proposal waits. */
  proposals = $state.raw<ReadonlySet<string>>(new Set());
  isLoaded = $state(false);
  problem = $state("");
  private timer: ReturnType<typeof setTimeout> | undefined;

  get count(): number {
    return this.sessions.length + this.runs.reduce((sum, { pauses }) => sum + Math.max(1, pauses.length), 0);
  }

  /** Begins to look, and goes on as long as the page lives. */
  start(): void {
    document.addEventListener("visibilitychange", () => void this.load());
    void this.load();
  }

  async load(): Promise<void> {
    clearTimeout(this.timer);
    if (document.hidden) return;
    try {
      const [{ runs }, { sessions }] = await Promise.all([gateway.client.runs({ waits: "true", limit: 100 }), gateway.client.sessions({ limit: 100 })]);
      this.runs = runs.map(waiting).filter(({ status, pauses }) => pauses.length || status.paused);
      this.sessions = sessions.filter((session) => session.open_decisions);
      this.proposals = new Set(sessions.filter((session) => session.pending_proposal).map((session) => session.session_id));
      this.problem = "";
      this.isLoaded = true;
    } catch (error) {
      this.problem = said(error);
    }
    this.timer = setTimeout(() => void this.load(), EVERY_MS);
  }
}

/** A run with its own pauses: those of its tasks stand with the tasks, where they are whole. */
function waiting(status: RunStatus): WaitingRun {
  const own = (status.pauses ?? []).filter((pause) => pause.run_id === status.run_id);
  return { status, pauses: own.map((pause) => ({ ...pause, type: "paused", until: pause.expires_at }) as OpenPause) };
}

export const waitingRuns = new Waiting();
