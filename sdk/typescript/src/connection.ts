// Connects to NATS. Takes the first of: a credential file (RUNWIRE_NATS_CREDENTIALS), RUNWIRE_NATS_URL, NATS_URL, nats://127.0.0.1:4222.

import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { dirname, resolve } from "node:path";
import { setTimeout } from "node:timers/promises";
import { AuthorizationError, connect, type ConnectionOptions, type NatsConnection, type TlsOptions } from "@nats-io/transport-node";

/** Of this package. */
export const VERSION = "0.1.0";
const PAUSE_MS = 250;
/** Of an attempt to connect to a server that is not there yet. */
const NOT_THERE = new Set(["ECONNREFUSED", "ECONNRESET", "ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "EHOSTUNREACH"]);

/** A credential file, in the form of a context of the `nats` command. A URL tls://, or the authority `ca`, demands TLS. */
interface Login {
  url: string;
  user?: string | undefined;
  password?: string | undefined;
  ca?: string | undefined;
}

/** Waits for a server that is not there yet. Rejects with what to do when the server refuses the login, or is not the right one. */
export async function connected(name: string): Promise<NatsConnection> {
  const login = find();
  const { servers, user, pass } = serversOf(login);
  const options: ConnectionOptions = {
    servers,
    name: `${name} (runwire-typescript ${VERSION})`,
    maxReconnectAttempts: -1,
    reconnectTimeWait: PAUSE_MS,
    ...(user === undefined ? {} : { user, pass: pass ?? "", inboxPrefix: `_INBOX.${user}` }),
    ...(login.ca || login.url.includes("tls://") ? { tls: tlsOf(servers[0]!, login.ca) } : {}),
  };
  for (let waits = false; ; waits = true) {
    try {
      return await connect(options);
    } catch (error) {
      const cause = error as { code?: string; cause?: { code?: string } };
      if (!NOT_THERE.has(cause.code ?? cause.cause?.code ?? "")) throw explained(error, user);
      if (!waits) console.error(`waiting for NATS: ${error}`);
    }
    await setTimeout(PAUSE_MS);
  }
}

/** Resolves when the connection is closed; rejects with what to do when it was closed for good by an error, as after a login was revoked. */
export async function closed(nc: NatsConnection): Promise<void> {
  const error = await nc.closed();
  if (error) throw explained(error);
}

function find(): Login {
  const { RUNWIRE_NATS_CREDENTIALS: file, RUNWIRE_NATS_URL, NATS_URL, RUNWIRE_NATS_USER, RUNWIRE_NATS_PASSWORD, RUNWIRE_NATS_CA } = process.env;
  if (!file) {
    const url = RUNWIRE_NATS_URL || NATS_URL || "nats://127.0.0.1:4222";
    return { url, user: RUNWIRE_NATS_USER || undefined, password: RUNWIRE_NATS_PASSWORD, ca: RUNWIRE_NATS_CA };
  }
  let found: Login | undefined;
  const text = readFileSync(file, "utf8");
  try {
    found = JSON.parse(text) as Login;
  } catch {
    // The error would show a part of the file.
  }
  if (!found?.url || !found.user || !found.password) throw new Error(`${file} is no credential file: it needs url, user and password`);
  return { ...found, ca: found.ca ? resolve(dirname(file), found.ca) : RUNWIRE_NATS_CA };
}

/** The library takes no login in a URL. */
function serversOf({ url, user, password }: Login): { servers: string[]; user: string | undefined; pass: string | undefined } {
  const parsed = url.split(",").map((server) => {
    const text = server.includes("://") ? server.trim() : `nats://${server.trim()}`;
    if (!URL.canParse(text)) throw new Error("the URL of NATS must have the form nats://[user:password@]host:port, or tls://");
    return new URL(text);
  });
  const { username, password: pass } = parsed[0]!;
  const own = user === undefined && username !== "";
  return {
    servers: parsed.map(({ host }) => host),
    user: own ? decodeURIComponent(username) : user,
    pass: own ? decodeURIComponent(pass) : password,
  };
}

/** The library does not tell Node the address of a server without a name; Node would look for `localhost` in its certificate. */
function tlsOf(server: string, ca: string | undefined): TlsOptions {
  const host = new URL(`nats://${server}`).hostname.replace(/^\[|\]$/g, "");
  return { ...(ca ? { caFile: ca } : {}), ...(isIP(host) ? { host } : {}) };
}

function explained(error: unknown, user?: string): unknown {
  const { message, code = "" } = error as { message?: string; code?: string };
  const text = message ?? String(error);
  if (error instanceof AuthorizationError) {
    const remedy = "set RUNWIRE_NATS_CREDENTIALS to a credential file, which `runwire credentials` writes, or RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD";
    return new Error(`NATS refuses the user ${JSON.stringify(user ?? "")} (${text}): ${remedy}`, { cause: error });
  }
  if (text.includes("does not support 'tls'")) {
    return new Error("the server offers no TLS, which tls:// or a certificate authority demands", { cause: error });
  }
  if (/SELF_SIGNED|ISSUER|UNABLE_TO_VERIFY/.test(code)) {
    return new Error(`${text}: set RUNWIRE_NATS_CA to the PEM file of the server's certificate authority`, { cause: error });
  }
  return error;
}
