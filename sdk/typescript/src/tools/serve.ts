// Serves a tool: a function, and what it says about itself.
//
// Rule 1: calls run at the same time; tool_runner limits how many, over all instances.
// Rule 2: the function runs once per idempotency key and round. A repeated request, or one on `.status`, joins the call in flight: it receives
//         all pieces of artifacts from the start, then the end. A call that has ended is answered again, never executed again.
// Rule 3: nothing starts after its deadline: a process that was stopped finds old requests in its socket when it wakes up. They are declined. Who
//         repeats one has read that, so a repetition that still seems late says how far this machine's clock is ahead.
// Rule 4: heartbeats come from this process's event loop, so a function that computes for long must yield to it regularly.

import { headers, type Msg, type MsgHdrs, type NatsConnection } from "@nats-io/transport-node";
import { Svcm } from "@nats-io/services";
import type { ToolCall } from "../contracts.js";
import { type Context, failure, type Kind, Pause, type Reply, reply, resultReplies, ToolError } from "./protocol.js";
import type { Tool, Work } from "./tool.js";

export interface Served {
  /** Takes no more calls, waits for those in flight, at most so many ms. */
  stop(graceMs: number): Promise<void>;
}

const HEARTBEAT_MS = 500;
/** Announced: twice the interval, so that one late heartbeat raises no alarm. */
const HEARTBEAT_S = (2 * HEARTBEAT_MS) / 1000;
const HEARTBEAT = reply("heartbeat", { every_s: HEARTBEAT_S });
const MAX_FINISHED = 1000;
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** How far this machine's clock is ahead of the callers', as far as their requests tell. */
let aheadMs = 0;
/** Requests that were declined as late, and not repeated yet. */
const declined = new Set<string>();

function isLate(call: ToolCall): boolean {
  const now = Date.now();
  if (typeof call.sent_at === "number") {
    const seems = now - call.sent_at;
    aheadMs = declined.delete(keyOf(call)) ? seems : Math.min(aheadMs, seems);
  }
  return now - aheadMs > Math.min(call.deadline_at, call.start_by ?? call.deadline_at);
}

/** One call: the subjects that wait for its replies, the pieces sent so far, and how it ended. */
class CallState {
  readonly abort = new AbortController();
  readonly waiting = new Set<string>();
  readonly pieces: Reply[] = [];
  ended: Reply[] | undefined;

  constructor(
    private readonly nc: NatsConnection,
    readonly call: ToolCall,
  ) {}

  join(to: string): void {
    if (this.ended === undefined) {
      this.waiting.add(to);
    }
    this.sendTo(to, this.ended ?? [HEARTBEAT, ...this.pieces]);
  }

  send(one: Reply): void {
    if (this.ended === undefined) {
      if (one.kind === "artifact_chunk") {
        this.pieces.push(one);
      }
      this.sendToAll([one]);
    }
  }

  end(replies: Reply[]): void {
    if (this.ended === undefined) {
      this.ended = replies;
      this.pieces.length = 0;
      this.sendToAll(replies);
      this.waiting.clear();
    }
  }

  private sendToAll(replies: Reply[]): void {
    for (const to of this.waiting) {
      this.sendTo(to, replies);
    }
  }

  private sendTo(to: string, replies: Reply[]): void {
    for (const one of replies) {
      const named = kindOf(one.kind);
      if (one.parts !== undefined) {
        named.set("Runwire-Parts", String(one.parts));
      }
      this.nc.publish(to, one.body, { headers: named });
    }
  }
}

function kindOf(kind: Kind): MsgHdrs {
  const named = headers();
  named.set("Runwire-Reply", kind);
  return named;
}

/** Runs the function and ends the call with its result, or with why there is none. */
async function settle(state: CallState, work: Work): Promise<void> {
  const { call, abort } = state;
  const late = setTimeout(
    () => abort.abort(new ToolError("the call's deadline passed", "deadline_passed")),
    Math.min(MAX_TIMEOUT_MS, call.deadline_at + aheadMs - Date.now()),
  );
  const heartbeat = setInterval(() => state.send(HEARTBEAT), HEARTBEAT_MS);
  const aborted = new Promise<never>((_, reject) => {
    abort.signal.addEventListener("abort", () => reject(abort.signal.reason), { once: true });
  });
  try {
    state.end(resultReplies(await Promise.race([work(call.args, contextOf(state)), aborted])));
  } catch (error) {
    state.end([error instanceof Pause ? reply("pause", error.body) : failure(error instanceof ToolError ? error : new ToolError(textOf(error)))]);
  } finally {
    clearTimeout(late);
    clearInterval(heartbeat);
  }
}

/** A tool may throw anything, also what has no text. */
function textOf(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return "the tool threw what has no text";
  }
}

function contextOf(state: CallState): Context {
  const numbers = new Map<string, number>();
  const { call } = state;
  const kept = call.state ?? {};
  let pauses = 0;
  return {
    call,
    state: kept,
    pause: (question) => {
      const number = pauses++;
      const answer = call.answers?.[number];
      if (answer === undefined && !call.understands_pause) {
        throw new ToolError("this tool asks a person, and its caller cannot wait for the answer", "pause_unsupported");
      }
      if (answer === undefined) {
        throw new Pause({ ...question, number, state: kept });
      }
      if (answer.decision === "reject") {
        throw new ToolError(`a person said no: ${answer.note}`, "rejected");
      }
      return answer.input;
    },
    signal: state.abort.signal,
    progress: (message, fraction) => state.send(reply("progress", { message, fraction })),
    artifact: (stream_id, chunk, { done = false, type } = {}) => {
      const seq = numbers.get(stream_id) ?? 0;
      numbers.set(stream_id, seq + 1);
      state.send(reply("artifact_chunk", { stream_id, seq, chunk, done, artifact_type: type }));
    },
  };
}

/** Serves calls on `tool.<name>` and announces the tool: a NATS micro service whose metadata is its specification. */
export async function serve(nc: NatsConnection, { spec, work }: Tool): Promise<Served> {
  const calls = new Map<string, CallState>();
  const running = new Set<Promise<void>>();

  function onRequest(message: Msg): void {
    const call = parsed<ToolCall>(message);
    if (typeof call?.idempotency_key !== "string" || typeof call.deadline_at !== "number" || !message.reply) {
      message.respond(failure(new ToolError("not a tool call", "bad_request")).body, { headers: kindOf("failure") });
      return;
    }
    const known = calls.get(keyOf(call));
    const state = known ?? new CallState(nc, call);
    if (known === undefined) {
      const late = isLate(call);
      if (late && call.understands_declined) {
        declined.add(keyOf(call));
        state.end([reply("declined", { reason: "late" })]);
      } else if (late) {
        state.end([failure(new ToolError("the call came too late and was not started", "deadline_passed", true))]);
      } else {
        calls.set(keyOf(call), state);
        const settled = settle(state, work).finally(() => {
          running.delete(settled);
          removeOldest(calls);
        });
        running.add(settled);
      }
    }
    state.join(message.reply);
  }

  function callOf(message: Msg): CallState | undefined {
    const question = parsed<Keyed>(message);
    return question && calls.get(keyOf(question));
  }

  // Every instance receives these; only the one that has the call answers.
  const subscriptions = [
    nc.subscribe(`tool.${spec.name}.status`, {
      callback: (_, message) => {
        if (message.reply) {
          callOf(message)?.join(message.reply);
        }
      },
    }),
    nc.subscribe(`tool.${spec.name}.cancel`, {
      callback: (_, message) => callOf(message)?.abort.abort(new ToolError("the call was cancelled", "cancelled")),
    }),
  ];
  const service = await new Svcm(nc).add({ name: spec.name, version: "1.0.0", description: spec.description ?? "" });
  service.addEndpoint(spec.name, {
    subject: `tool.${spec.name}`,
    queue: spec.name,
    metadata: { "runwire.spec": JSON.stringify({ ...spec, heartbeat_s: HEARTBEAT_S }) },
    handler: (error, message) => error ?? onRequest(message),
  });
  await nc.flush();
  if (service.isStopped) {
    throw new Error(`the credential does not allow the tool ${spec.name}: "runwire credentials tool ${spec.name}" gives one that does`);
  }
  return {
    async stop(graceMs) {
      await service.stop();
      await Promise.race([Promise.all(running), new Promise((resolve) => setTimeout(resolve, graceMs).unref())]);
      subscriptions.forEach((subscription) => subscription.unsubscribe());
    },
  };
}

interface Keyed {
  idempotency_key: string;
  round?: number;
}

/** Of a round of a call: after a pause the function runs again. */
function keyOf({ idempotency_key, round }: Keyed): string {
  return `${idempotency_key}~${round ?? 0}`;
}

function parsed<T>(message: Msg): T | undefined {
  try {
    return message.json<T>();
  } catch {
    return undefined;
  }
}

/** Keeps the last thousand calls that have ended. */
function removeOldest(calls: Map<string, CallState>): void {
  const ended = [...calls].filter(([, state]) => state.ended !== undefined);
  for (const [key] of ended.slice(0, Math.max(0, ended.length - MAX_FINISHED))) {
    calls.delete(key);
  }
}
