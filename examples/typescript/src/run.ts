// The main function of a tool.

import { closed, connected } from "./connection.js";
import type { ToolSpec } from "./protocol.js";
import { serve, type Work } from "./serve.js";

const GRACE_MS = 10_000;

/** Serves a function until a signal, or until the connection is closed for good. */
export async function run(spec: ToolSpec, work: Work): Promise<void> {
  try {
    const nc = await connected(spec.name);
    const served = await serve(nc, spec, work);
    console.log(`serving ${spec.name}`);
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.once(signal, () => void served.stop(GRACE_MS).then(() => nc.drain()));
    }
    await closed(nc);
  } catch (error) {
    console.error((error as Error).message);
    process.exit(1);
  }
}
