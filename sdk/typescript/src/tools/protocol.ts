// The words between tool_runner and a tool, as docs/tool_protocol.md has them, and what a tool's function receives.

import type { ToolCall } from "../contracts.js";

/** What a tool asks a person. */
export interface Question {
  title: string;
  payload?: unknown;
  /** JSON Schema of the answer. */
  input_schema?: object;
}

/** Ends a round of a call. A function lets it pass. */
export class Pause extends Error {
  constructor(readonly body: Question & { number: number; state: Record<string, unknown> }) {
    super(`waits for a person: ${body.title}`);
  }
}

/** What a tool's function receives, and how it reports what it does. */
export interface Context {
  readonly call: ToolCall;
  /** Aborted when nobody waits for the result any more. */
  readonly signal: AbortSignal;
  /** Shows how far the work is: a text for people, a fraction from 0 to 1. */
  progress(message: string, fraction?: number): void;
  /** Kept from pause to pause, up to 32 KiB as JSON. */
  readonly state: Record<string, unknown>;
  /**
   * Asks a person and returns the answer. Without an answer yet it throws a Pause, which ends the function. When there is one, the
   * function runs again from its beginning, and its n-th pause returns the n-th answer.
   */
  pause(question: Question): unknown;
  /** Shows a piece of an artifact while it grows: any JSON value up to 128 KiB. */
  artifact(streamId: string, chunk: unknown, options?: { done?: boolean; type?: string }): void;
}

/** The tool cannot do what was requested. The model reads the reason, so it says what to do differently. */
export class ToolError extends Error {
  constructor(
    reason: string,
    readonly code: string = "tool_error",
    readonly retryable: boolean = false,
  ) {
    super(reason);
  }
}

export type Kind = "heartbeat" | "progress" | "artifact_chunk" | "part" | "result" | "failure" | "pause" | "declined";

export interface Reply {
  kind: Kind;
  body: Uint8Array;
  /** Of a result that went in parts: how many. */
  parts?: number;
}

const PART_BYTES = 1 << 20;
const encoder = new TextEncoder();

export function reply(kind: Kind, body: unknown): Reply {
  return { kind, body: encoder.encode(JSON.stringify(body)) };
}

export function failure(error: ToolError): Reply {
  return reply("failure", { reason: error.message, code: error.code, retryable: error.retryable });
}

/** A result above 1 MB goes as parts of raw bytes and an empty result that counts them. */
export function resultReplies(value: unknown): Reply[] {
  const { body } = reply("result", value ?? null);
  if (body.length <= PART_BYTES) {
    return [{ kind: "result", body }];
  }
  const parts: Reply[] = [];
  for (let start = 0; start < body.length; start += PART_BYTES) {
    parts.push({ kind: "part", body: body.subarray(start, start + PART_BYTES) });
  }
  return [...parts, { kind: "result", body: new Uint8Array(), parts: parts.length }];
}
