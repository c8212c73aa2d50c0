// The one connection of the page to its gateway: the address below which the page lies. Who has signed in has a cookie.

import { Client, Problem, type Agent, type Login } from "@runwire/client";

const base = new URL(".", document.baseURI);

/** JSON whose whole numbers keep all their digits, as texts where a number would round them. */
export function exactly(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_name, value: unknown, context?: { source?: string }) => {
    const isRounded = typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "");
    return isRounded ? context?.source : value;
  });
}

class Gateway {
  /** Whether the gateway has another page by now than the one that runs here. */
  isNewer = $state(false);
  /** What the key of this page may do; undefined: the gateway has not answered, or asks for a key. */
  login = $state.raw<Login>();
  needsKey = $state(false);
  agents = $state.raw<Agent[]>([]);
  /** Streams that are being connected again. */
  lost = $state(0);
  readonly client = new Client({ url: base, fetch: (input, init) => this.fetched(input, init), parse: exactly });

  /** Whether the demo model answers. */
  get isDemo(): boolean {
    return this.agents.some((agent) => agent.models.some((model) => model.startsWith("builtin/")));
  }

  may(right: Login["rights"][number]): boolean {
    return this.login?.rights.includes(right) ?? false;
  }

  /** Whether the key may use a tool without a run. */
  mayCall(tool: string): boolean {
    return this.may("run") && (this.login?.tools?.includes(tool) ?? !this.login?.agents);
  }

  async start(): Promise<void> {
    try {
      const login = await this.client.login();
      const agents = await this.client.agents();
      this.agents = agents.filter((agent) => login.agents?.includes(agent.name) ?? true);
      this.login = login;
      this.needsKey = false;
    } catch {
      if (!this.needsKey) setTimeout(() => void this.start(), 2_000);
    }
  }

  /** Gives the key for a cookie; throws Problem for one that is refused. */
  async signIn(key: string): Promise<void> {
    await new Client({ url: base, key }).logIn();
    await this.start();
  }

  async signOut(): Promise<void> {
    await this.client.logOut();
    location.replace("#/");
    location.reload();
  }

  /** The same client, which says how much of what it sends is there: `fetch` does not. */
  sending(onProgress: (share: number) => void): Client {
    const fetch = (address: unknown, { method = "GET", body }: RequestInit = {}) =>
      new Promise<Response>((resolve, reject) => {
        const request = new XMLHttpRequest();
        request.open(method, String(address));
        request.responseType = "arraybuffer";
        request.upload.onprogress = ({ loaded, total }) => onProgress(total && loaded / total);
        request.onload = () => resolve(new Response(request.response as ArrayBuffer, { status: request.status }));
        request.onerror = () => reject(new TypeError("The connection was lost."));
        request.send(body as Blob);
      });
    return new Client({ url: base, fetch });
  }

  /** Looks whether the page is still the gateway's: names of its files hold digests. Whoever stays on an old one meets files that are gone. */
  async look(): Promise<void> {
    const script = document.querySelector("script[src]")?.getAttribute("src") ?? "";
    const answer = await fetch(location.pathname, { cache: "no-cache" }).catch(() => undefined);
    if (answer?.ok) this.isNewer = !(await answer.text()).includes(script);
  }

  private async fetched(...request: Parameters<typeof fetch>): Promise<Response> {
    const response = await fetch(...request);
    if (response.status === 401) this.needsKey = true;
    return response;
  }
}

export const gateway = new Gateway();

/** What a refusal says, with the fields that it names. */
export function said(error: unknown): string {
  if (!(error instanceof Problem)) return (error as Error).message;
  const fields = (error.body["errors"] ?? []) as { field: string; message: string }[];
  return [error.detail, ...fields.map(({ field, message }) => `${field}: ${message}`)].join(" ");
}
