import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Client, type Link, Problem } from "../src/index.js";

const EVENT = (type: string, id?: string, data = "") =>
  `event: ${type}\ndata: {"type":"${type}","text":${JSON.stringify(data)}}\n${id ? `id: ${id}\n` : ""}\n`;

/** Answers each request in turn, and follows run `r` of that gateway to its end. */
async function followed(answers: ((response: ServerResponse) => void)[]) {
  const asked: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    asked.push(request.headers["last-event-id"] as string | undefined);
    answers[asked.length - 1]?.(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Client({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` });
  const seen: string[] = [];
  const links: Link[] = [];
  try {
    for await (const record of client.events("r", { onLink: (link) => links.push(link) })) {
      seen.push(...record.events.map((event) => `${event.type} ${(event as { text?: string }).text ?? ""}`.trim()));
    }
  } finally {
    server.closeAllConnections();
    server.close();
  }
  return { seen, asked, links };
}

const stream = (text: string, { broken = false } = {}) => (response: ServerResponse) => {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  if (broken) response.write(text, () => response.destroy());
  else response.end(text);
};

test("a stream that breaks within a record goes on after the last whole one, and gives each event once", async () => {
  const { seen, asked, links } = await followed([
    stream(`retry: 1000\n\n${EVENT("chunk", "1-1", "a")}${EVENT("thinking")}`, { broken: true }),
    stream(`${EVENT("thinking")}${EVENT("chunk", "1-2", "b — ü")}`),
    (response) => response.writeHead(503, { "Retry-After": "1" }).end("{}"),
    stream(`: waiting\n\n${EVENT("step")}${EVENT("done", "2-2")}`),
  ]);
  assert.deepEqual(seen, ["chunk a", "thinking", "chunk b — ü", "step", "done"]);
  assert.deepEqual(asked, [undefined, "1-1", "1-2", "1-2"]);
  assert.deepEqual(links, ["open", "lost", "open", "lost", "lost", "open"]);
});

test("204 ends a stream", async () => {
  const { asked } = await followed([stream(EVENT("chunk", "1-1")), (response) => response.writeHead(204).end()]);
  assert.deepEqual(asked, [undefined, "1-1"]);
});

test("a refusal that waiting does not mend is thrown", async () => {
  const problem = { status: 404, code: "not_found", detail: "There is no such run." };
  const refused = followed([(response) => response.writeHead(404).end(JSON.stringify(problem))]);
  await assert.rejects(refused, (error) => error instanceof Problem && error.code === "not_found" && !error.isTemporary);
});
