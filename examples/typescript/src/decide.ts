// Receives the pauses of a tenant's runs over NATS, and approves calls of the tools that it is given, over HTTP: decide <tenant> <tool> ....
// All other pauses wait for a person: `runwire approvals` lists them, and those from before it began.
//
// A listener publishes nothing on NATS. The right to decide is that of the API key (RUNWIRE_API_KEY) at the gateway (RUNWIRE_URL).

import { setTimeout } from "node:timers/promises";
import { Client, Problem } from "@runwire/sdk";
import { connected, pauses } from "@runwire/sdk/runs";

const RETRY_PAUSE_MS = 1000;
const { RUNWIRE_URL: url = "http://127.0.0.1:8080", RUNWIRE_API_KEY: key } = process.env;
const gateway = new Client({ url, key });

/**
 * Sends the decision until it is answered, and returns how: as `approved`, or with the code of the refusal. The idempotency key is made of
 * what was decided, so that a decision which is sent twice counts once.
 */
async function approve(run: string, pause: { pause_id: string; token: string }): Promise<string> {
  for (;;) {
    try {
      await gateway.resume(run, pause, { decision: "approve" }, `approve-${pause.token}`);
      return "approved";
    } catch (error) {
      if (error instanceof Problem && !error.isTemporary) return error.code;
      console.error(`the gateway does not decide: ${(error as Error).message}`);
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
  const asked = await pauses(await connected("decide"), tenant);
  console.log("listening");
  for await (const { run_id: run, pause_id, token, reason, tool, arguments: args } of asked) {
    console.log(`paused ${run} ${reason} ${tool ?? ""} ${JSON.stringify(args)}`);
    if (reason === "approval" && tools.includes(tool ?? "") && pause_id && token) {
      void approve(run, { pause_id, token }).then((how) => console.log(`decided ${run} ${how}`));
    }
  }
}

await main(tenant).catch((error: Error) => {
  console.error(error.message);
  process.exit(1);
});
