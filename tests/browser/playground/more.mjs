// The first minute's table, a page of one's own, images of a question, the gallery, a replay, the search, schedules; and what a finished turn offers.

import { readFileSync } from "node:fs";
import { faults } from "./axe.mjs";
import { base, seen } from "./page.mjs";

const PIXEL = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
const FAKE = "f".repeat(32);
const ended = {
  type: "done",
  raw_answer: "East grew most [1], and `[1]` is code; [9] is nothing.",
  reason: "answer_complete",
  confidence: 0.5,
  route: "partial",
  warnings: ["Only a part was read."],
  sources: [{ title: "Sales of 2024", url: "https://example.org/sales" }],
  artifacts: { tool: { notes: "# Notes", code: "print(1)", rows: [{ a: 1 }], report: { artifact_id: "art_1", mime_type: "application/pdf", size: 9, sha256: "" } } },
  artifact_types: { tool: { notes: "markdown" } },
  extra: { client_actions: [{ label: "Fly", action: "fly" }, { label: "Close", action: "close_chat" }] },
};
const started = { type: "run_started", run_id: FAKE, tenant: "t", limits: {}, request: { query: "Faked", requested_at: 0, session_id: "faked" } };
const odd = { type: "payload", payload_id: "0".repeat(32), kind: "data_proposal", summary: "Odd", data: { operations: [null, "x", { action: 1, row_id: "x" }] } };
const stream = [started, odd, ended].map((event, at) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\nid: ${at}-0\n\n`).join("");

await seen(async (page, context) => {
  const question = page.getByRole("textbox", { name: "Question" });
  const thumbs = page.getByRole("list", { name: "Images" }).getByRole("listitem");
  /** Gives the question files as a paste or a drop does. */
  const give = (type, text = "") =>
    question.evaluate(
      (field, [type, text, bytes]) => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], "given.png", { type: "image/png" }));
        if (text) data.setData("text/plain", text);
        const init = { bubbles: true, cancelable: true, clipboardData: data, dataTransfer: data };
        field.dispatchEvent(type === "paste" ? new ClipboardEvent(type, init) : new DragEvent(type, init));
      },
      [type, text, [...PIXEL]],
    );
  await page.route("**/v1/agents", async (route) => {
    const { agents } = await (await route.fetch()).json();
    await route.fulfill({ json: { agents: agents.map((agent) => ({ ...agent, sees_images: false })) } });
  });
  await page.goto(`${base}/playground`);
  await page.getByLabel("Images", { exact: true }).first().setInputFiles({ name: "picked.png", mimeType: "image/png", buffer: PIXEL });
  await give("paste");
  await give("drop");
  await give("paste", "a text with a picture of it");
  await page.getByText("cannot see images").waitFor();
  const picked = await thumbs.count();
  await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"));
  await page.getByRole("button", { name: "Remove picked.png" }).click();
  await page.reload();
  await thumbs.nth(1).locator("img").waitFor(); // They are there still, from the store.
  const kept = await thumbs.count();
  await question.fill("How large are these images?");
  await question.dispatchEvent("keydown", { key: "Enter", isComposing: true });
  const isAsked = (await page.locator(".turn").count()) > 0;
  await question.press("Enter");
  await page.locator(".ask .thumbs img").nth(1).waitFor();
  await page.locator(".verdict").waitFor();

  await question.fill("Which region grew most in sales.csv? Draw a chart.");
  await question.press("Enter");
  await page.locator(".verdict").nth(1).waitFor();
  const session = page.url();
  await page.getByRole("tab", { name: "Artifacts" }).click();
  await page.getByRole("link", { name: "as a gallery" }).click();
  await page.locator(".tile").nth(2).waitFor();
  const tiles = await page.locator(".tile").allInnerTexts();
  await page.getByRole("button", { name: "Charts" }).click();
  await page.locator(".tile").last().click();
  await page.getByRole("button", { name: "JSON" }).click();
  const raw = await page.getByRole("region", { name: "JSON of chart" }).innerText();
  const gallery = page.url();

  await page.goto(session);
  await page.getByRole("link", { name: "Replay" }).nth(1).click();
  const slider = page.getByRole("slider", { name: "Position in the run" });
  await page.locator(".strip").getByText("Done").waitFor(); // It opens at its end.
  await slider.fill("4");
  await page.keyboard.press("ArrowRight");
  const middle = { at: await slider.inputValue(), answers: await page.locator(".answer").count() };
  await page.getByRole("button", { name: "5×" }).click();
  await page.getByRole("button", { name: "Play" }).click();
  await page.locator(".verdict").waitFor();
  const replay = page.url();

  await page.request.post(`${base}/v1/schedules`, { data: { name: "nightly", cron: "30 2 * * *", time_zone: "Europe/Berlin", run: { query: "What is new?" } } });
  await page.goto(`${base}/playground#/schedules`);
  await page.getByRole("button", { name: "nightly" }).click();
  await page.locator(".times li").nth(2).waitFor();
  const times = await page.locator(".times").innerText();
  const schedule = page.url();
  await page.goto(`${base}/playground#/sessions`);
  await page.getByRole("searchbox").fill("how LARGE");
  const marked = await page.locator("mark").first().innerText();

  await page.route(`**/v1/runs/${FAKE}**`, (route) =>
    route.request().url().includes("/events")
      ? route.fulfill({ contentType: "text/event-stream", body: stream })
      : route.fulfill({ json: { run_id: FAKE, query: "Faked", status: "done", cause: "user" } }),
  );
  const warned = page.waitForEvent("console", (message) => message.type() === "warning");
  await page.goto(`${base}/playground#/s/run-${FAKE}`);
  await page.locator("button.cite").click();
  const cited = await page.evaluate(() => document.activeElement?.textContent?.trim());
  const turn = await page.getByRole("article").innerText();
  await page.getByRole("button", { name: "Fly" }).click();
  const unknown = (await warned).text();
  await page.getByRole("button", { name: "Close", exact: true }).click(); // Of a chat on no page: back to the list.
  await page.getByRole("heading", { name: "Sessions", level: 1 }).waitFor();

  const asked = page.waitForRequest((request) => request.method() === "POST");
  await page.route("**/v1/pages", (route) => route.fulfill({ json: { pages: [{ name: "orders", description: "Orders", tabs: [{ name: "late", subtabs: ["weeks"] }], payloads: [], client_actions: [] }] } }));
  await page.goto(`${base}/playground#/pages/orders`);
  await page.getByRole("button", { name: "late" }).click();
  await page.getByRole("button", { name: "weeks" }).click();
  await question.fill("When do they come?");
  await question.press("Enter");
  const { page: place } = (await asked).postDataJSON();
  await page.unroute("**/v1/pages");
  await page.goto(`${base}/playground`);
  await page.getByRole("button", { name: "I want to track my job applications" }).click();
  await page.getByRole("button", { name: "Dismiss" }).click();
  await page.locator(".proposal").getByText("dismissed").waitFor();
  const wrong = await faults(context, [
    [`${base}/playground`, ".example"],
    [gallery, ".chart-frame"],
    [replay, ".player"],
    [schedule, ".times li"],
  ]);
  return { picked, kept, isAsked, tiles, raw, middle, times, marked, cited, turn, unknown, place, wrong };
});
