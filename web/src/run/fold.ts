// What a run's events say, as the page shows it: a fold without a clock of its own, a network or a page.

import type { Fault, FinalPayload, KnownEvent, Page, Paused, PayloadProposed, PlannedCall, Resumed, RunEvent, Usage } from "@runwire/client";
import { Growing, type Shown } from "../artifacts/growing";

export type Status = "queued" | "running" | "answering" | "stopping" | "waiting" | "paused" | "done" | "error" | "cancelled";

export interface Row {
  readonly key: string;
  readonly kind: "model" | "tool" | "task" | "note";
  readonly title: string;
  state: "running" | "done" | "failed" | "waiting";
  /** When it began, when its first token came and when it ended, in ms of the page's clock. */
  begun: number;
  first?: number;
  ended?: number;
  /** As the gateway measured it; missing where the page has to measure. */
  latencyMs?: number;
  step: number;
  args?: unknown;
  result?: unknown;
  failure?: string;
  progress?: string;
  thought?: string;
  detail?: string;
}

export interface SeenEvent {
  readonly id: string;
  readonly at: number;
  readonly event: RunEvent;
}

export type OpenPause = Paused & { pause_id: string; plan?: readonly { [name: string]: unknown }[] };

/** A pause that is over. `resumed` is missing where the run ended first. */
export interface Decision {
  readonly pause: OpenPause;
  readonly resumed?: Resumed;
}

const ENDED = new Set<Status>(["done", "error", "cancelled"]);

export class Run {
  query = "";
  agent = "";
  model = "";
  sessionId = "";
  requestedAt = 0;
  /** Where the user stood. */
  page?: Page | undefined;
  images: { artifact_id: string; mime_type?: string }[] = [];
  status: Status = "queued";
  answer = "";
  answerDone = false;
  thinking = "";
  thinkingBegun = 0;
  thinkingEnded = 0;
  rows: Row[] = [];
  pauses: OpenPause[] = [];
  decisions: Decision[] = [];
  budget = "";
  inputs: string[] = [];
  payloads: PayloadProposed[] = [];
  payload?: FinalPayload;
  reason = "";
  code = "";
  error = "";
  usage?: Usage;
  firstWord?: number;
  seen: SeenEvent[] = [];
  readonly growing = new Growing();
  private answerLength = 0;
  private thinkingLength = 0;
  private readonly byCall = new Map<string, Row>();

  constructor(readonly id: string) {}

  get hasEnded(): boolean {
    return ENDED.has(this.status);
  }

  get artifacts(): readonly Shown[] {
    return this.growing.shown;
  }

  /** Takes an event in; one of a type that this page does not know is kept for the inspector, and changes nothing. */
  apply(given: RunEvent, at: number, id: string): void {
    this.seen.push({ event: given, at, id });
    const event = given as KnownEvent;
    switch (event.type) {
      case "queued":
      case "run_started": {
        const { request } = event;
        this.query = request?.cause === "report" ? "What the background tasks found" : (request?.query ?? "");
        this.agent = request?.agent ?? "";
        this.sessionId = request?.session_id ?? `run-${this.id}`;
        this.requestedAt = request?.requested_at ?? 0;
        this.images = request?.images ?? [];
        this.page = request?.page ?? undefined;
        if (event.type === "run_started") {
          this.model = event.model ?? "";
          this.status = "running";
        }
        return;
      }
      default:
        return this.applyProgress(event, at);
    }
  }

  private applyProgress(event: KnownEvent, at: number): void {
    switch (event.type) {
      case "asked":
        return this.asked(event, at);
      case "thinking": {
        const { offset = 0, text, done } = event;
        if (offset === 0 && text) [this.thinkingBegun, this.thinkingEnded] = [at, 0];
        [this.thinking, this.thinkingLength] = spliced(this.thinking, this.thinkingLength, offset, text);
        if (done) this.thinkingEnded = at;
        this.markFirst(at);
        return;
      }
      case "chunk": {
        const { offset = 0, text, done } = event;
        [this.answer, this.answerLength] = spliced(this.answer, this.answerLength, offset, text);
        this.answerDone = done ?? false;
        this.thinkingEnded ||= at;
        if (text) this.firstWord ??= at;
        if (!this.hasEnded && this.status !== "stopping") this.status = "answering";
        this.markFirst(at);
        return;
      }
      case "step":
        return this.step(event, at);
      case "called":
        return this.calls(event.calls, event.step, at);
      case "tool_progress": {
        const row = this.byCall.get(event.call_id);
        if (row) row.progress = String((event as { message?: unknown }).message ?? "");
        return;
      }
      case "observed":
        return this.observed(event, at);
      case "artifact_chunk":
        return this.growing.piece(event);
      case "artifact_stored":
        return this.growing.stored(event);
      case "payload":
        this.payloads = [...this.payloads, event];
        return;
      case "repaired":
      case "model_failed":
      case "compacted":
        return this.note(event, at);
      default:
        return this.applyPeople(event, at);
    }
  }

  private applyPeople(event: KnownEvent, at: number): void {
    switch (event.type) {
      case "paused": {
        const pause = { ...event } as OpenPause;
        if (!pause.pause_id) {
          this.budget = pause.budget ?? "";
          this.status = "paused";
          return;
        }
        this.pauses = [...this.pauses.filter((one) => one.pause_id !== pause.pause_id), pause];
        this.status = "waiting";
        const row = this.byCall.get(pause.call_id ?? "");
        if (row) {
          row.state = "waiting";
          const step = this.rows.filter((one) => one.kind === "tool" && one.step === row.step);
          pause.plan = step.map((one) => ({ call_id: one.key, tool: one.title, args: one.args }));
        }
        return;
      }
      case "resumed": {
        const { pause_id, arguments: args, images = [] } = event;
        this.images = [...this.images, ...images];
        const over = this.pauses.find((pause) => pause.pause_id === pause_id);
        this.pauses = this.pauses.filter((pause) => pause !== over);
        if (over) this.decisions = [...this.decisions, { pause: over, resumed: event }];
        const row = this.byCall.get(over?.call_id ?? "");
        if (row) row.state = "running";
        if (row && args) row.args = args;
        this.budget = "";
        this.status = this.pauses.length ? "waiting" : "running";
        return;
      }
      case "input_added":
        this.inputs = [...this.inputs, event.text ?? ""];
        return;
      case "stopping":
        this.status = "stopping";
        return;
      case "done":
      case "error":
      case "cancelled":
        return this.end(event, at);
    }
  }

  private asked(event: Extract<KnownEvent, { type: "asked" }>, at: number): void {
    const key = `model ${event.turn}.${event.attempt}`;
    this.endModel(at, "done");
    const title = event.cause === "turn" || event.cause === "resumed" ? "Model decides" : `Model again: ${WHY[event.cause ?? ""] ?? event.cause}`;
    this.rows = [...this.rows, { key, kind: "model", title, state: "running", begun: at, step: event.turn, detail: event.model ?? "" }];
    if (this.status !== "stopping" && !this.pauses.length) this.status = "running";
  }

  private step(event: Extract<KnownEvent, { type: "step" }>, at: number): void {
    if (event.status !== "started") return;
    const row = this.endModel(at, "done");
    if (row && event.thought) row.thought = event.thought;
    if (row && event.node === "final_response") this.rows = this.rows.map((one) => (one === row ? { ...row, title: "Model answers" } : one));
    this.calls(event.calls ?? [], event.step, at);
  }

  private calls(calls: readonly PlannedCall[], step: number, at: number): void {
    for (const call of calls) {
      if (this.byCall.has(call.call_id)) continue;
      const kind = call.tool.startsWith("tasks.") ? "task" : "tool";
      const row: Row = { key: call.call_id, kind, title: call.tool, state: "running", begun: at, step, args: call.args };
      this.byCall.set(call.call_id, row);
      this.rows = [...this.rows, row];
    }
  }

  private observed(event: Extract<KnownEvent, { type: "observed" }>, at: number): void {
    const row = this.byCall.get(event.call_id);
    if (row) {
      row.state = event.status === "failed" ? "failed" : "done";
      row.ended = at;
      row.latencyMs = event.latency_ms ?? 0;
      row.result = event.content ?? event.observation;
      if (event.failure) row.failure = `${event.failure.code}: ${said(event.failure)}`;
    }
    this.growing.observed(event);
  }

  private note(event: KnownEvent, at: number): void {
    const state = event.type === "model_failed" ? "failed" : "done";
    const row = this.endModel(at, state);
    const failed = event as { fault?: Fault; reason?: string; then?: string; next_model?: string };
    if (!row) return;
    if (event.type === "compacted") row.detail = "The conversation was too long and was shortened.";
    else if (event.type === "repaired") row.failure = failed.reason ?? "";
    else row.failure = `${failed.fault ? said(failed.fault) : "no reply"}; ${failed.then === "fallback" ? `next: ${failed.next_model}` : "asked again"}`;
  }

  private end(event: Extract<KnownEvent, { type: "done" | "error" | "cancelled" }>, at: number): void {
    const payload = (event.type === "done" ? event : event.payload) as FinalPayload | undefined;
    this.status = event.type;
    this.payload = payload;
    this.usage = event.usage as Usage | undefined;
    this.reason = event.type === "error" ? "" : (event.reason ?? "");
    this.code = event.type === "error" ? event.code : "";
    this.error = event.type === "error" ? event.error : "";
    if (payload?.raw_answer) this.answer = payload.raw_answer;
    this.answerDone = true;
    this.decisions = [...this.decisions, ...this.pauses.map((pause) => ({ pause }))];
    this.pauses = [];
    this.endModel(at, event.type === "error" ? "failed" : "done");
    for (const row of this.rows) if (row.ended === undefined) [row.ended, row.state] = [at, row.state === "done" ? "done" : "failed"];
    this.growing.final(payload?.artifacts ?? {}, payload?.artifact_types);
  }

  private endModel(at: number, state: Row["state"]): Row | undefined {
    const row = this.rows.findLast((one) => one.kind === "model" && one.ended === undefined);
    if (row) [row.ended, row.state] = [at, state];
    return row;
  }

  private markFirst(at: number): void {
    const row = this.rows.findLast((one) => one.kind === "model");
    if (row && row.ended === undefined) row.first ??= at;
  }
}

function said(fault: Fault): string {
  return fault.reason;
}

const WHY: Record<string, string> = {
  lost: "its process ended",
  repair: "its reply could not be read",
  provider: "the request failed",
  compacted: "the conversation was too long",
  restated: "the answer is shown again",
};

/** A text whose characters from `offset` on are replaced, and its length in Unicode code points. */
export function spliced(text: string, length: number, offset: number, added: string): [string, number] {
  const kept = offset >= length ? text : Array.from(text).slice(0, offset).join("");
  return [kept + added, Math.min(offset, length) + Array.from(added).length];
}
