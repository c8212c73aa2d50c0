// The artifacts of a run: those that grow piece by piece, and those that its results name.

import type { ArtifactChunk, ArtifactRef, ArtifactStored, Observed } from "@runwire/client";

export interface Shown {
  readonly key: string;
  readonly tool: string;
  readonly field: string;
  /** As its tool declared it, such as `echarts`. */
  readonly type: string;
  readonly mime: string;
  /** What is known of its value; for what is stored elsewhere, nothing. */
  readonly value: unknown;
  readonly ref?: ArtifactRef | undefined;
  readonly isGrowing: boolean;
}

export class Growing {
  shown: readonly Shown[] = [];

  /** Pieces of one stream come in order; one that was given twice is dropped. */
  piece(event: ArtifactChunk): void {
    const key = `${event.tool}.${event.stream_id}`;
    const before = this.shown.find((one) => one.key === key);
    const count = this.counts.get(`${event.call_id} ${event.stream_id}`) ?? 0;
    if (event.seq !== count) return;
    this.counts.set(`${event.call_id} ${event.stream_id}`, count + 1);
    const type = event.artifact_type ?? (count ? before?.type : "") ?? "";
    const value = joined(type, count ? before?.value : undefined, event.chunk);
    this.put({ key, tool: event.tool, field: event.stream_id, type, mime: "", value, ref: before?.ref, isGrowing: !event.done });
  }

  stored(event: ArtifactStored): void {
    const { tool, field, mime_type: mime, artifact_type, artifact_id, size } = event;
    const before = this.shown.find((one) => one.key === `${tool}.${field}`);
    const ref = { artifact_id, mime_type: mime, size, sha256: "" };
    this.put({ key: `${tool}.${field}`, tool, field, type: artifact_type ?? before?.type ?? "", mime, value: before?.value, ref, isGrowing: false });
  }

  observed(event: Observed): void {
    if (event.artifacts) this.final({ [event.tool]: event.artifacts });
  }

  /** `artifacts`: by tool and field, values or references. `types`: by tool and field, what those are. */
  final(artifacts: Record<string, unknown>, types: Record<string, Record<string, string>> = {}): void {
    for (const [tool, fields] of Object.entries(artifacts)) {
      for (const [field, value] of Object.entries((fields ?? {}) as Record<string, unknown>)) {
        const key = `${tool}.${field}`;
        const before = this.shown.find((one) => one.key === key);
        const ref = isRef(value) ? value : before?.ref;
        const type = ref?.artifact_type ?? types[tool]?.[field] ?? before?.type ?? "";
        const known = isRef(value) ? before?.value : value;
        this.put({ key, tool, field, type: type || guessed(known), mime: ref?.mime_type ?? "application/json", value: known, ref, isGrowing: false });
      }
    }
  }

  private readonly counts = new Map<string, number>();

  private put(next: Shown): void {
    const at = this.shown.findIndex((one) => one.key === next.key);
    this.shown = at < 0 ? [...this.shown, next] : this.shown.with(at, next);
  }
}

export function isRef(value: unknown): value is ArtifactRef {
  return typeof value === "object" && value !== null && "artifact_id" in value && "mime_type" in value && "sha256" in value;
}

function guessed(value: unknown): string {
  if (typeof value === "object" && value !== null && "series" in value && Array.isArray(value.series)) return "echarts";
  return isTable(value) ? "table" : "";
}

export function isTable(value: unknown): value is Record<string, unknown>[] {
  return Array.isArray(value) && value.length > 0 && value.every((row) => typeof row === "object" && row !== null && !Array.isArray(row));
}

/** Texts are joined, charts merged; of other JSON it is the list of the pieces. */
function joined(type: string, before: unknown, piece: unknown): unknown {
  if (typeof piece === "string") return `${typeof before === "string" ? before : ""}${piece}`;
  return type === "echarts" ? merged(before, piece) : [...(Array.isArray(before) ? before : []), piece];
}

const NEVER = new Set(["__proto__", "constructor", "prototype"]);

/** A piece on what there was: members are merged, items with the same `id` too, and other items appended. */
export function merged(before: unknown, piece: unknown): unknown {
  if (Array.isArray(piece)) {
    if (!Array.isArray(before)) return piece.map((item) => merged(undefined, item));
    const items = [...before];
    for (const item of piece) {
      const id = (item as { id?: unknown } | null)?.id;
      const at = id === undefined ? -1 : items.findIndex((one) => (one as { id?: unknown } | null)?.id === id);
      if (at < 0) items.push(merged(undefined, item));
      else items[at] = merged(items[at], item);
    }
    return items;
  }
  if (typeof piece !== "object" || piece === null) return piece;
  const old = typeof before === "object" && before !== null && !Array.isArray(before) ? (before as Record<string, unknown>) : {};
  const result: Record<string, unknown> = { ...old };
  for (const [name, value] of Object.entries(piece)) if (!NEVER.has(name)) result[name] = merged(old[name], value);
  return result;
}
