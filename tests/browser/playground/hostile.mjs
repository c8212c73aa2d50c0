// Asks a hostile model and its tool for each case, as a run of its own, and says what became of their answers, charts, documents and files.
// One thing is not asked for but made up here: the tables service refuses a payload as odd as that.

import { readFileSync } from "node:fs";
import { base, seen } from "./page.mjs";

const cases = JSON.parse(readFileSync(new URL("hostile.json", import.meta.url), "utf8"));
const MADE_UP = "1".padStart(32, "0");

function record(number) {
  const { markdown, payload } = cases[number];
  const started = { type: "run_started", run_id: MADE_UP, tenant: "t", limits: {}, request: { query: `Case ${number}`, requested_at: 0 } };
  const odd = { type: "payload", payload_id: MADE_UP, kind: "data_proposal", summary: "An odd payload", data: payload };
  const events = [started, odd, { type: "done", raw_answer: markdown, artifacts: {}, reason: "answer_complete" }];
  return events.map((event, at) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\nid: ${at}-0\n\n`).join("");
}

await seen(async (page, context) => {
  const questions = cases.map((_, number) => `Case ${String(number).padStart(3, "0")}`);
  const ids = [];
  for (const [number, query] of questions.entries()) {
    if (cases[number].payload) ids.push(MADE_UP);
    else ids.push((await (await context.request.post(`${base}/v1/runs`, { data: { query, agent: "scripted" } })).json()).run_id);
  }
  await page.route(`**/v1/runs/${MADE_UP}*/**`, (route) => {
    const body = record(cases.findIndex(({ payload }) => payload));
    return route.request().url().endsWith("/events") ? route.fulfill({ contentType: "text/event-stream", body }) : route.fulfill({ json: { run_id: MADE_UP, status: "done", cause: "user" } });
  });
  await page.route(`**/v1/runs/${MADE_UP}`, (route) => route.fulfill({ json: { run_id: MADE_UP, query: "odd", status: "done", cause: "user" } }));
  await page.goto(`${base}/playground`);
  await page.evaluate(() => (window.canary = "alive"));
  const shown = [];
  for (const [number, id] of ids.entries()) {
    await page.evaluate((hash) => (location.hash = hash), `#/s/run-${id}`);
    await page.locator(`#run-${id} .verdict`).waitFor();
    if (cases[number].option) await page.locator(".chart-frame, .code").first().waitFor();
    if (!cases[number].payload) await page.locator("figure.artifact").nth(2).waitFor();
    if (cases[number].said) await page.locator(".artifact .note", { hasText: cases[number].said }).waitFor();
    if (cases[number].payload) await page.getByText("An odd payload").first().waitFor();
    shown.push(
      await page.evaluate(() => {
        const all = [...document.querySelectorAll(".answer *")];
        const links = [...document.querySelectorAll(".answer a[href]")].map((anchor) => anchor.getAttribute("href"));
        const given = all.flatMap((element) => element.getAttributeNames());
        const texts = [...document.querySelectorAll(".answer")].map((answer) => answer.textContent);
        return { names: all.map((element) => element.tagName.toLowerCase()), links, given, texts, files: document.querySelectorAll("figure.artifact").length };
      }),
    );
  }
  await page.waitForTimeout(300);
  const after = await page.evaluate(() => ({ canary: window.canary, prototype: Object.keys(Object.prototype).length, polluted: {}.polluted ?? null }));
  return { shown, after };
});
