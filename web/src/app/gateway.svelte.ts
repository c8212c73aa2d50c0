// The one connection of the page to its gateway: the address below which the page lies.

import { Client, Problem, type Agent } from "@runwire/client";

const base = new URL(".", document.baseURI);

class Gateway {
  /** Whether requests need a key that nobody has given yet. */
  needsKey = $state(false);
  agents = $state.raw<Agent[]>([]);
  /** Streams that are being connected again. */
  lost = $state(0);
  client = new Client({ url: base });

  /** Whether the demo model answers. */
  get isDemo(): boolean {
    return this.agents.some((agent) => agent.models.some((model) => model.startsWith("builtin/")));
  }

  async start(): Promise<void> {
    try {
      this.agents = await this.client.agents();
      this.needsKey = false;
    } catch (error) {
      this.needsKey = error instanceof Problem && error.status === 401;
      if (!this.needsKey) setTimeout(() => void this.start(), 2_000);
    }
  }

  /** Uses a key from now on, as long as the page lives; throws Problem for one that is refused. */
  async signIn(key: string): Promise<void> {
    const client = new Client({ url: base, key });
    this.agents = await client.agents();
    this.client = client;
    this.needsKey = false;
  }
}

export const gateway = new Gateway();
