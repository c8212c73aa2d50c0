// A run as the page follows it: its events folded as they come, and shown in frames. What has ended needs no connection.

import { Problem, type RunEvent } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";
import { Run } from "./fold";
import { inFrame } from "./frames";

const PAUSE_MS = 16;

export class Followed {
  readonly run: Run;
  private version = $state(0);
  isLost = $state(false);
  problem = $state("");
  /** When the first event came; bars begin there. */
  begun = 0;
  /** Whether the events are seen as they happen, so that the page's clock measures them. */
  isLive = $state(false);
  private readonly stop = new AbortController();
  private isDrawing = false;
  private pauseMs = PAUSE_MS;
  private readonly openedAt = Date.now();

  constructor(id: string, query = "") {
    this.run = new Run(id);
    this.run.query = query;
    void this.follow();
  }

  /** The run as it is now; the same for a frame. */
  readonly now: Run = $derived.by(() => {
    void this.version;
    const copy = Object.assign(Object.create(Run.prototype) as Run, this.run);
    copy.rows = this.run.rows.map((row) => ({ ...row }));
    return copy;
  });

  close(): void {
    this.stop.abort();
    this.setLost(false);
  }

  private async follow(): Promise<void> {
    const onLink = (link: string) => this.setLost(link === "lost");
    try {
      for await (const record of gateway.client.events(this.run.id, { signal: this.stop.signal, onLink })) {
        const at = performance.now();
        this.begun ||= at;
        for (const event of record.events) this.run.apply(event as RunEvent, at, record.id);
        if (!this.isLive && this.run.requestedAt) this.isLive = Math.abs(this.openedAt - this.run.requestedAt) < 2_000;
        this.draw();
      }
    } catch (error) {
      this.problem = error instanceof Problem ? error.detail : String(error);
    } finally {
      this.setLost(false);
      this.draw();
    }
  }

  private setLost(isLost: boolean): void {
    if (isLost !== this.isLost) gateway.lost += isLost ? 1 : -1;
    if (this.isLost && !isLost) void gateway.look(); // It may have been upgraded meanwhile.
    this.isLost = isLost;
  }

  /** Shows what is new, at most thirty times a second, and the less often the longer the page takes to draw it. */
  private draw(): void {
    if (this.isDrawing) return;
    this.isDrawing = true;
    const drawn = () => {
      const begun = performance.now();
      this.isDrawing = false;
      this.version += 1;
      setTimeout(() => (this.pauseMs = Math.max(PAUSE_MS, 2 * (performance.now() - begun)))); // By then it is painted.
    };
    setTimeout(() => inFrame(drawn), this.pauseMs);
  }
}
