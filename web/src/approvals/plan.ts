// The whole plan that a call which waits is a part of.

import type { OpenPause } from "../run/fold";

export interface Planned {
  readonly tool: string;
  readonly args: Record<string, unknown>;
  readonly waits: boolean;
}

type Args = Record<string, unknown>;

/** Of a step with several calls, or of a plan with templates, which the pause shows; nothing for a call of its own. */
export function planOf(pause: OpenPause): Planned[] {
  const shown = pause.payload as { plan?: { calls?: { tool_name: string; arguments?: Args }[] }; call?: number } | null | undefined;
  if (Array.isArray(shown?.plan?.calls)) {
    return shown.plan.calls.map(({ tool_name, arguments: args = {} }, number) => ({ tool: tool_name, args, waits: number === shown.call }));
  }
  const calls = (pause.plan ?? []) as { call_id: string; tool: string; args?: Args }[];
  return calls.map(({ call_id, tool, args = {} }) => ({ tool, args, waits: call_id === pause.call_id }));
}
