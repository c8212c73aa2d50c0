import { closed, connected } from "../connection.js";
import { serve } from "./serve.js";
import type { Tool } from "./tool.js";

const GRACE_MS = 10_000;

/** The main function of a program: serves tools until a signal, or until the connection is closed for good. */
export async function main(...tools: [Tool, ...Tool[]]): Promise<void> {
  try {
    const names = tools.map(({ spec }) => spec.name).join(", ");
    const nc = await connected(names);
    const served = await Promise.all(tools.map((tool) => serve(nc, tool)));
    console.log(`serving ${names}`);
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.once(signal, () => void Promise.all(served.map((one) => one.stop(GRACE_MS))).then(() => nc.drain()));
    }
    await closed(nc);
  } catch (error) {
    console.error((error as Error).message);
    process.exit(1);
  }
}
