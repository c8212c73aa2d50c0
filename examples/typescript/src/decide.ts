// Receives the pauses of a tenant's runs over NATS, and approves calls of the tools that it is given, over HTTP: decide <tenant> <tool> ....
// All other pauses wait for a person: `runwire approvals` lists them, and those from before it began.
//
// A listener publishes nothing on NATS. The right to decide is that of the API key (RUNWIRE_API_KEY) at the gateway (RUNWIRE_URL).

import { setTimeout } from "node:timers/promises";
import type { Msg } from "@nats-io/transport-node";
import { closed, connected } from "./connection.js";
import { stored } from "./record.js";

const RETRY_PAUSE_MS = 1000;
const { RUNWIRE_URL: url = "http://127.0.0.1:8080", RUNWIRE_API_KEY: key } = process.env;

/** A call of a run that waits for a person. The token says what the person was shown: a decision repeats it. */
interface Pause {
  type: string;
  pause_id: string | null;
  reason: string;
  tool: string | null;
  arguments: unknown;
  token: string;
}

async function receive(message: Msg, tools: string[]): Promise<void> {
  const run = message.subject.split(".")[2]!;
  for (const event of stored(message)?.events ?? []) {
    const pause = event as unknown as Pause;
    if (pause.type === "paused" && pause.pause_id) {
      console.log(`paused ${run} ${pause.reason} ${pause.tool ?? ""} ${JSON.stringify(pause.arguments)}`);
      if (pause.reason === "approval" && tools.includes(pause.tool ?? "")) {
        console.log(`decided ${run} ${await approve(run, pause)}`);
      }
    }
  }
}

/**
 * Sends the decision until it is answered, and returns how: as `approved`, or with the code of the refusal. The idempotency key is made of
 * what was decided, so that a decision which is sent twice counts once.
 */
async function approve(run: string, { pause_id, token }: Pause): Promise<string> {
  for (;;) {
    try {
      const answer = await fetch(`${url.replace(/\/+$/, "")}/v1/runs/${run}/resume`, {
        method: "POST",
        headers: {
          "Content-Type": "application/json",
          "Idempotency-Key": `approve-${token}`,
          ...(key ? { Authorization: `Bearer ${key}` } : {}),
        },
        body: JSON.stringify({ pause_id, token, decision: "approve" }),
      });
      if (answer.ok) return "approved";
      if (answer.status < 500 && answer.status !== 429) return ((await answer.json()) as { code: string }).code;
      console.error(`the gateway answers ${answer.status}`);
    } catch (error) {
      console.error(`the gateway does not answer: ${(error as Error).message}`);
    }
    await setTimeout(RETRY_PAUSE_MS);
  }
}

const [tenant, ...tools] = process.argv.slice(2);
if (!tenant || !/^[a-z0-9_-]{1,64}$/.test(tenant) || tools.length === 0) {
  console.error("usage: node dist/decide.js <tenant> <tool> ...");
  process.exit(2);
}

async function main(tenant: string): Promise<void> {
  const nc = await connected("decide");
  nc.subscribe(`run.${tenant}.*.log`, {
    callback: (error, message) => {
      if (error) console.error(error.message);
      else void receive(message, tools).catch((reason: Error) => console.error(reason.message));
    },
  });
  await nc.flush();
  console.log("listening");
  await closed(nc);
}

await main(tenant).catch((error: Error) => {
  console.error(error.message);
  process.exit(1);
});
