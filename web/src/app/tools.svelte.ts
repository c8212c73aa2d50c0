// The tools of the gateway, read when something needs them.

import type { LiveTool } from "@runwire/client";
import { gateway } from "./gateway.svelte";

class Tools {
  list = $state.raw<LiveTool[]>([]);
  refused = $state.raw<{ name: string; reason: string }[]>([]);
  private asked = false;

  async load(): Promise<void> {
    ({ tools: this.list, refused: this.refused } = await gateway.client.toolList());
  }

  /** The schema of a tool's arguments, once it is known. */
  schemaOf(name: string | null | undefined): unknown {
    if (!this.asked) {
      this.asked = true;
      void this.load().catch(() => (this.asked = false));
    }
    return this.list.find((tool) => tool.name === name)?.input_schema;
  }
}

export const tools = new Tools();
