// The sample of docs/playground.md in a page whose server passes on to the gateway, and loses the stream in the middle of the run.
//
// node resume.mjs <gateway> <folder> <browser> <sdk/typescript, built> <sample>

import { createReadStream } from "node:fs";
import { createServer, request } from "node:http";
import { join } from "node:path";

const [gateway, , , sdk, sample] = process.argv.slice(2);
const page = `<!doctype html><link rel="icon" href="data:,">
<script type="importmap">{"imports": {"@runwire/sdk": "/dist/src/index.js",
  "eventsource-parser": "/node_modules/eventsource-parser/dist/index.js"}}</script>
<script>window.seen = []; console.log = (_type, event) => window.seen.push(event)</script>
<script type="module">const key = undefined;
${sample}
window.run = run_id;
window.refused = await client.events("0".repeat(32)).next().catch((problem) => problem.status);</script>`;

const asked = [];
let lost = 0;
const front = createServer((incoming, outgoing) => {
  if (incoming.url === "/") return outgoing.setHeader("Content-Type", "text/html").end(page);
  if (!incoming.url.startsWith("/v1/")) return createReadStream(join(sdk, incoming.url)).pipe(outgoing.setHeader("Content-Type", "text/javascript"));
  const isStream = incoming.url.endsWith("/events");
  if (isStream) asked.push(incoming.url);
  if (isStream && lost === 1) return (lost += 1), incoming.destroy(); // The network is still away.
  const passed = request(gateway + incoming.url, { method: incoming.method, headers: { ...incoming.headers, host: new URL(gateway).host } });
  passed.on("response", (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.on("data", (bytes) => {
      outgoing.write(bytes);
      if (!isStream || lost || !/^event: step$/m.test(bytes)) return;
      lost += 1;
      outgoing.destroy();
    });
    answer.on("end", () => outgoing.end());
  });
  incoming.pipe(passed);
});
await new Promise((done) => front.listen(0, "127.0.0.1", done));
process.argv[2] = `http://127.0.0.1:${front.address().port}`;

const { base, seen } = await import("./page.mjs");
await seen(async (opened) => {
  await opened.goto(base);
  const { run, events, refused } = await opened
    .waitForFunction(() => window.refused && { run: window.run, events: window.seen, refused: window.refused })
    .then((handle) => handle.jsonValue());
  const stored = await (await fetch(`${gateway}/v1/runs/${run}/events`)).text();
  const whole = [...stored.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data));
  return { same: JSON.stringify(events) === JSON.stringify(whole), types: events.map((event) => event.type), refused, lost, asked };
});
front.closeAllConnections();
front.close();
