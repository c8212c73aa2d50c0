// Shows the page answers and charts of a hostile model, each as a run of its own, and says what became of them.

import { readFileSync } from "node:fs";
import { base, seen } from "./page.mjs";

const cases = JSON.parse(readFileSync(new URL("hostile.json", import.meta.url), "utf8"));
const ids = cases.map((_, number) => (number + 1).toString(16).padStart(32, "0"));

function record(number) {
  const { markdown = "", option, payload } = cases[number];
  const artifacts = option ? { tool: { chart: option } } : {};
  const started = { type: "run_started", run_id: ids[number], tenant: "t", limits: {}, request: { query: `case ${number}`, requested_at: 0 } };
  const pieces = [...markdown.matchAll(/[^]{1,7}/g)].map(([text], seq, all) => {
    const offset = all.slice(0, seq).reduce((length, one) => length + Array.from(one[0]).length, 0);
    return { type: "chunk", seq, offset, text, action_seq: 1, attempt: 1 };
  });
  const odd = { type: "payload", payload_id: ids[number], kind: "data_proposal", summary: "An odd payload", data: payload };
  const events = [started, ...pieces, ...(payload ? [odd] : []), { type: "done", raw_answer: markdown, artifacts, reason: "answer_complete" }];
  return events.map((event, at) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\nid: ${at}-0\n\n`).join("");
}

await seen(async (page) => {
  await page.route("**/v1/runs/**", (route) => {
    const path = new URL(route.request().url()).pathname.split("/");
    const number = ids.indexOf(path[3]);
    if (path[4] === "events") return route.fulfill({ contentType: "text/event-stream", body: record(number) });
    return route.fulfill({ json: { run_id: ids[number], query: `case ${number}`, status: "done", cause: "user" } });
  });
  await page.goto(`${base}/playground`);
  await page.evaluate(() => (window.canary = "alive"));
  const shown = [];
  for (const [number, id] of ids.entries()) {
    await page.evaluate((hash) => (location.hash = hash), `#/s/run-${id}`);
    await page.getByRole("heading", { name: `case ${number}`, level: 2, exact: true }).waitFor();
    await page.locator(".verdict").waitFor();
    if (cases[number].option) await page.locator(".chart-frame, .code").first().waitFor();
    if (cases[number].payload) await page.getByText("An odd payload").first().waitFor();
    shown.push(
      await page.evaluate(() => {
        const names = [...document.querySelectorAll(".answer *")].map((element) => element.tagName.toLowerCase());
        const links = [...document.querySelectorAll(".answer a[href]")].map((anchor) => anchor.getAttribute("href"));
        const given = [...document.querySelectorAll(".answer *")].flatMap((element) => element.getAttributeNames());
        return { names, links, given, text: document.querySelector(".answer")?.textContent ?? "" };
      }),
    );
  }
  await page.waitForTimeout(300);
  const after = await page.evaluate(() => ({ canary: window.canary, prototype: Object.keys(Object.prototype).length, polluted: {}.polluted ?? null }));
  return { shown, after };
});
