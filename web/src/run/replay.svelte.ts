// A run that has ended, once more from its log, at the pace at which its records were stored; nothing takes longer than 5 s.
// A record that has expired has no time: its events take what was measured, or an even pace.

import { type RunEvent } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";
import { readHeads, sequences } from "../inside/records";
import { Run, type SeenEvent } from "./fold";

const MOST_MS = 5_000;
const EVENT_MS = 300;
const PIECE_MS = 40;

export class Replay {
  events = $state.raw<readonly SeenEvent[]>([]);
  /** How many of the events have happened, and when that is. */
  position = $state(0);
  time = $state(0);
  speed = $state(1);
  isPlaying = $state(false);
  problem = $state("");
  // As a run that is followed.
  readonly begun = 0;
  readonly isLive = true;
  readonly isLost = false;
  private readonly stop = new AbortController();
  private folded: Run;
  private count = 0;

  constructor(
    readonly id: string,
    at = Number.POSITIVE_INFINITY,
  ) {
    this.folded = new Run(id);
    this.read(at).catch((error) => (this.problem = (error as Error).message));
  }

  readonly now: Run = $derived.by(() => {
    if (this.position < this.count) [this.folded, this.count] = [new Run(this.id), 0];
    for (const { event, at, id } of this.events.slice(this.count, this.position)) this.folded.apply(event, at, id);
    this.count = this.position;
    const copy = Object.assign(Object.create(Run.prototype) as Run, this.folded);
    copy.rows = this.folded.rows.map((row) => ({ ...row }));
    return copy;
  });

  get length(): number {
    return this.events.at(-1)?.at ?? 0;
  }

  /** Goes to where `position` events have happened. */
  seek(position: number): void {
    this.position = Math.max(0, Math.min(this.events.length, position));
    this.time = this.events[this.position - 1]?.at ?? 0;
  }

  play(): void {
    if (this.position === this.events.length) this.seek(0);
    this.isPlaying = true;
    let before = performance.now();
    const frame = (at: number) => {
      if (!this.isPlaying || this.stop.signal.aborted) return;
      this.time += (at - before) * this.speed;
      before = at;
      while (this.position < this.events.length && (this.events[this.position]?.at ?? 0) <= this.time) this.position += 1;
      this.isPlaying = this.position < this.events.length;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  close(): void {
    this.stop.abort();
  }

  private async read(at: number): Promise<void> {
    const read: SeenEvent[] = [];
    for await (const record of gateway.client.events(this.id, { signal: this.stop.signal })) {
      for (const event of record.events as RunEvent[]) read.push({ event, at: 0, id: record.id });
    }
    const heads = await readHeads(this.id, new Map());
    let [time, before] = [0, 0];
    this.events = sequences(read).map((sequence, number) => {
      const { event, id } = read[number]!;
      const stored = heads.get(sequence)?.at ?? 0;
      if (number) time += Math.min(MOST_MS, stored && before ? Math.max(0, stored - before) : paced(event));
      before = stored;
      return { event, at: time, id };
    });
    this.seek(at);
  }
}

function paced(event: RunEvent): number {
  const measured = event.type === "observed" ? (event as { latency_ms?: number }).latency_ms : 0;
  return measured || (/chunk|thinking/.test(event.type) ? PIECE_MS : EVENT_MS);
}
