import { AuthorizationError, connect, type NatsConnection } from "@nats-io/transport-node";

/** Connects as RUNWIRE_NATS_URL, RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD say; waits for a server that is not there yet. */
export function connected(name: string): Promise<NatsConnection> {
  const { RUNWIRE_NATS_URL: url = "nats://127.0.0.1:4222", RUNWIRE_NATS_USER: user, RUNWIRE_NATS_PASSWORD: pass } = process.env;
  return connect({
    servers: url.split(","),
    name,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 250,
    waitOnFirstConnect: true,
    ...(user === undefined ? {} : { user, ...(pass === undefined ? {} : { pass }) }),
  }).catch((error: unknown) => {
    if (!(error instanceof AuthorizationError)) throw error;
    throw new Error(`${error.message}: set RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD; "runwire env" prints them`, { cause: error });
  });
}
