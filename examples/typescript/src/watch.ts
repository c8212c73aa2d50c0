// Follows one run, live: node dist/watch.js <run id> [tenant]. Prints an event a line and ends with the run. It needs the rights of a
// listener: the live subjects, and the last record of the log.

import { connected, follow } from "@runwire/sdk/runs";

const [run, tenant = "default"] = process.argv.slice(2);
if (!run || !/^[0-9a-f]{32}$/.test(run) || !/^[a-z0-9_-]{1,64}$/.test(tenant)) {
  console.error("usage: node dist/watch.js <run id> [tenant]");
  process.exit(2);
}

async function main(run: string): Promise<void> {
  const nc = await connected("watch");
  for await (const { kind, sequence, events } of follow(nc, tenant, run)) {
    for (const event of events) console.log(`${kind} ${sequence} ${event.type} ${JSON.stringify(event)}`);
  }
  await nc.close();
}

await main(run).catch((error: Error) => {
  console.error(error.message);
  process.exit(1);
});
