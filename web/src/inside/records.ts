// The events of a run, each with the record that it is stored in, and what one copies of them.

import type { RecordHead } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";
import type { Run, SeenEvent } from "../run/fold";

/** The sequence of the record of each event: what its id has that the id before it had not. */
export function sequences(seen: readonly SeenEvent[]): number[] {
  let before = ["0", "0"];
  let current = 0;
  let id = "";
  return seen.map((one) => {
    if (one.id !== id) {
      const parts = one.id.split("-");
      current = Number(parts.find((part, index) => part !== before[index]) ?? 0);
      [id, before] = [one.id, parts];
    }
    return current;
  });
}

/** Subjects, headers and sizes by sequence; reads on after what is known. */
export async function readHeads(runId: string, known: ReadonlyMap<number, RecordHead>): Promise<Map<number, RecordHead>> {
  const heads = new Map(known);
  for (;;) {
    const records = await gateway.client.records(runId, Math.max(0, ...heads.keys()));
    for (const record of records) heads.set(record.sequence, record);
    if (records.length < 1000) return heads;
  }
}

export function curlOf(path: string, body?: unknown): string {
  const key = gateway.login?.key_id ? ` -H "Authorization: Bearer $RUNWIRE_API_KEY"` : "";
  const sent = body === undefined ? "" : ` -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  return `curl -N ${new URL(path, document.baseURI)}${key}${sent}`;
}

/** A case for a test: the events that a client is sent, and what it is to show at their end. */
export function vectorOf(run: Run): unknown {
  const { id, query, status, answer, reason, code } = run;
  return { name: query, run_id: id, events: run.seen.map(({ id: of, event }) => ({ id: of, event })), then: { status, answer, reason, code } };
}
