// The model calls of a run with what each has used, as its events say.

import type { KnownEvent, Usage } from "@runwire/client";
import type { Run } from "../run/fold";

export interface ModelCall {
  /** Of its event `asked`, from 1 on. */
  readonly number: string;
  readonly turn: number;
  readonly part: number;
  readonly attempt: number;
  readonly cause: string;
  model: string;
  usage?: Usage;
  /** What it led to; its usage comes with it. */
  outcome: string;
}

export function nameOf({ turn, part, attempt, cause }: ModelCall): string {
  return [`Turn ${turn}${part ? `, part ${part}` : ""}`, attempt > 1 && `attempt ${attempt}`, cause !== "turn" && cause].filter(Boolean).join(", ");
}

export function modelCalls(run: Run): ModelCall[] {
  const calls: ModelCall[] = [];
  for (const [index, { event: given }] of run.seen.entries()) {
    const event = given as KnownEvent;
    const last = calls.at(-1);
    if (event.type === "asked") {
      if (event.unfinished && last) last.usage ??= event.unfinished;
      const { turn, part = 0, attempt, cause = "turn", model } = event;
      if (cause !== "restated") calls.push({ number: String(index + 1), turn, part, attempt, cause, model: model ?? run.model, outcome: "" });
    } else if (last && (event.type === "step" || event.type === "repaired" || event.type === "model_failed")) {
      if (event.usage) last.usage = event.usage;
      last.outcome ||= event.type === "step" ? (event.node ?? "step") : event.type === "repaired" ? "not readable" : "failed";
    }
  }
  return calls;
}
