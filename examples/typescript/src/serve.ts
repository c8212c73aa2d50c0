// Serves a function as a tool, on the plain NATS client. Copy this file and protocol.ts; the rest of a tool is its function.
//
// Rule 1: calls run at the same time; how many, over all copies, is bounded by whoever sends them.
// Rule 2: the function runs once per idempotency key. A repeated request or a question on `.status` joins the call in flight: it is
//         shown all pieces of artifacts from the start, then the end. A call that has ended is answered again, never done again.
// Rule 3: nothing starts after its deadline: a process that was stopped finds old requests in its socket when it wakes up.
// Rule 4: heartbeats come from this process's event loop, so a function that computes must let it turn now and then.

import { headers, type Msg, type MsgHdrs, type NatsConnection } from "@nats-io/transport-node";
import { Svcm } from "@nats-io/services";
import { type Context, failure, type Kind, type Reply, reply, resultReplies, ToolError, type ToolCall, type ToolSpec } from "./protocol.js";

export type Work = (args: Record<string, unknown>, context: Context) => Promise<unknown>;

export interface Served {
  /** Takes no more calls, waits for those in flight, at most so many ms. */
  stop(graceMs: number): Promise<void>;
}

const BEAT_MS = 500;
/** Twice the pause between beats, so that one late beat is no alarm. */
const PROMISED_S = (2 * BEAT_MS) / 1000;
const BEAT = reply("heartbeat", { every_s: PROMISED_S });
const MAX_FINISHED = 1000;
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** One call: who waits for it, what they were shown, and how it ended. */
class HeldCall {
  readonly abort = new AbortController();
  readonly waiting = new Set<string>();
  readonly shown: Reply[] = [];
  ended: Reply[] | undefined;

  constructor(
    private readonly nc: NatsConnection,
    readonly call: ToolCall,
  ) {}

  join(to: string): void {
    if (this.ended === undefined) {
      this.waiting.add(to);
    }
    this.send(to, this.ended ?? [BEAT, ...this.shown]);
  }

  show(one: Reply): void {
    if (this.ended === undefined) {
      if (one.kind === "artifact_chunk") {
        this.shown.push(one);
      }
      this.toAll([one]);
    }
  }

  end(replies: Reply[]): void {
    if (this.ended === undefined) {
      this.ended = replies;
      this.shown.length = 0;
      this.toAll(replies);
      this.waiting.clear();
    }
  }

  private toAll(replies: Reply[]): void {
    for (const to of this.waiting) {
      this.send(to, replies);
    }
  }

  private send(to: string, replies: Reply[]): void {
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
async function settle(held: HeldCall, work: Work): Promise<void> {
  const { call, abort } = held;
  const late = setTimeout(
    () => abort.abort(new ToolError("the call's deadline passed", "deadline_passed")),
    Math.min(MAX_TIMEOUT_MS, call.deadline_at - Date.now()),
  );
  const beating = setInterval(() => held.show(BEAT), BEAT_MS);
  const aborted = new Promise<never>((_, reject) => {
    abort.signal.addEventListener("abort", () => reject(abort.signal.reason), { once: true });
  });
  try {
    held.end(resultReplies(await Promise.race([work(call.args, contextOf(held)), aborted])));
  } catch (error) {
    held.end([failure(error instanceof ToolError ? error : new ToolError(String(error)))]);
  } finally {
    clearTimeout(late);
    clearInterval(beating);
  }
}

function contextOf(held: HeldCall): Context {
  const numbers = new Map<string, number>();
  return {
    call: held.call,
    signal: held.abort.signal,
    progress: (message, fraction) => held.show(reply("progress", { message, fraction })),
    artifact: (stream_id, chunk, { done = false, type } = {}) => {
      const seq = numbers.get(stream_id) ?? 0;
      numbers.set(stream_id, seq + 1);
      held.show(reply("artifact_chunk", { stream_id, seq, chunk, done, artifact_type: type }));
    },
  };
}

/** Takes calls on `tool.<name>` and makes the tool known as a NATS micro service whose metadata is its specification. */
export async function serve(nc: NatsConnection, spec: ToolSpec, work: Work): Promise<Served> {
  const calls = new Map<string, HeldCall>();
  const running = new Set<Promise<void>>();

  function onRequest(message: Msg): void {
    const call = parsed<ToolCall>(message);
    if (typeof call?.idempotency_key !== "string" || typeof call.deadline_at !== "number" || !message.reply) {
      message.respond(failure(new ToolError("not a tool call", "bad_request")).body, { headers: kindOf("failure") });
      return;
    }
    const known = calls.get(call.idempotency_key);
    const held = known ?? new HeldCall(nc, call);
    if (known === undefined) {
      if (Date.now() > Math.min(call.deadline_at, call.start_by ?? call.deadline_at)) {
        held.end([failure(new ToolError("the call came too late and was not started", "deadline_passed", true))]);
      } else {
        calls.set(call.idempotency_key, held);
        const settled = settle(held, work).finally(() => {
          running.delete(settled);
          forget(calls);
        });
        running.add(settled);
      }
    }
    held.join(message.reply);
  }

  function asked(message: Msg): HeldCall | undefined {
    return calls.get(parsed<{ idempotency_key: string }>(message)?.idempotency_key ?? "");
  }

  // Every copy hears a question; the one that holds the call answers, the others stay silent.
  const questions = [
    nc.subscribe(`tool.${spec.name}.status`, {
      callback: (_, message) => {
        if (message.reply) {
          asked(message)?.join(message.reply);
        }
      },
    }),
    nc.subscribe(`tool.${spec.name}.cancel`, {
      callback: (_, message) => asked(message)?.abort.abort(new ToolError("the call was cancelled", "cancelled")),
    }),
  ];
  const service = await new Svcm(nc).add({ name: spec.name, version: "1.0.0", description: spec.description });
  service.addEndpoint(spec.name, {
    subject: `tool.${spec.name}`,
    queue: spec.name,
    metadata: { "runwire.spec": JSON.stringify({ ...spec, heartbeat_s: PROMISED_S }) },
    handler: (error, message) => error ?? onRequest(message),
  });
  await nc.flush();
  return {
    async stop(graceMs) {
      await service.stop();
      await Promise.race([Promise.all(running), new Promise((resolve) => setTimeout(resolve, graceMs).unref())]);
      questions.forEach((question) => question.unsubscribe());
    },
  };
}

function parsed<T>(message: Msg): T | undefined {
  try {
    return message.json<T>();
  } catch {
    return undefined;
  }
}

/** Remembers the last thousand calls that have ended. */
function forget(calls: Map<string, HeldCall>): void {
  const ended = [...calls].filter(([, held]) => held.ended !== undefined);
  for (const [key] of ended.slice(0, Math.max(0, ended.length - MAX_FINISHED))) {
    calls.delete(key);
  }
}
