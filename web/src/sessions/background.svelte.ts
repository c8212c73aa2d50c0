// The background tasks of a session as its gateway lists them, read again while one runs and the page is seen.

import type { TaskView } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";

const EVERY_MS = 2_000;
/** How long after the last task a report is looked for. */
const REPORTS_WITHIN_MS = 30_000;

export class Background {
  tasks = $state.raw<readonly TaskView[]>([]);
  now = $state(Date.now());
  problem = $state("");
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `onReport`: called while a report of what has ended may be written. */
  constructor(
    private readonly sessionId: string,
    private readonly onReport: () => void,
  ) {}

  get open(): number {
    return this.tasks.filter((task) => task.status === "running").length;
  }

  async load(): Promise<void> {
    clearTimeout(this.timer);
    try {
      if (!document.hidden) this.tasks = await gateway.client.tasks(this.sessionId);
      this.problem = "";
    } catch (error) {
      this.problem = (error as Error).message;
    }
    this.now = Date.now();
    const mayReport = this.tasks.some((task) => task.ended_at && this.now - task.ended_at < REPORTS_WITHIN_MS);
    if (mayReport) this.onReport();
    if (this.open || mayReport) this.timer = setTimeout(() => void this.load(), EVERY_MS);
  }

  close(): void {
    clearTimeout(this.timer);
  }
}
