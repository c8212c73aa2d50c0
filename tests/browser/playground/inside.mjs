// What waits in all runs, and what is inside one: the whole plan, records, prompts, cost, tools, agents, a plan that is checked, links.

import { faults } from "./axe.mjs";
import { base, folder, seen } from "./page.mjs";

const at = (...parts) => `${base}/playground#/${parts.join("/")}`;

await seen(async (page, context) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  const query = 'Analyze sales.csv, then send a report to ann@example.org: "All is well"';
  const body = JSON.stringify({ query, agent: "plans", session_id: "inside" });
  const { run_id: run } = await (await fetch(`${base}/v1/runs`, { method: "POST", body })).json();

  await page.goto(at("approvals"));
  const card = page.getByRole("article", { name: query });
  const waiting = await card.innerText();
  await page.screenshot({ path: `${folder}/approvals.png` });
  await page.goto(at("sessions"));
  await page.getByRole("link", { name: query }).getByText("Waits for you").first().waitFor();
  await page.goto(at("approvals"));
  const waits = await faults(context, [[at("approvals"), ".approval"]]);
  const second = await context.newPage();
  await second.goto(at("approvals"));
  await second.getByRole("article", { name: query }).getByRole("button", { name: "Approve" }).click();
  await second.close();
  await card.waitFor({ state: "detached" });

  const asks = (text) => page.request.post(`${base}/v1/runs`, { data: { query: `Send a report to ann@example.org: "${text}"`, session_id: text } });
  await Promise.all(["one", "other"].map(asks));
  await page.getByRole("button", { name: "Approve" }).nth(1).waitFor();
  const first = await page.getByRole("button", { name: "Approve" }).first().boundingBox();
  for (const pause of [250, 0]) {
    await page.mouse.click(first.x + 20, first.y + 10);
    await page.waitForTimeout(pause);
  }
  await page.getByRole("button", { name: "Approve" }).nth(1).waitFor({ state: "detached" });
  const receipt = await page.locator(".note").first().innerText();
  const left = (await (await page.request.get(`${base}/v1/runs?waits=true`)).json()).runs;
  await page.setViewportSize({ width: 390, height: 800 });
  await page.goto(at("s", left[0].session_id));
  await page.getByRole("button", { name: "Approve" }).waitFor();
  await page.screenshot({ path: `${folder}/waits-390.png` });
  await page.locator(".approval .card-foot").scrollIntoViewIfNeeded();
  const bar = await page.locator(".strip").boundingBox();
  await page.screenshot({ path: `${folder}/waits-390-end.png` });
  await page.getByRole("button", { name: "Stop" }).click();
  await page.locator(".strip").getByText("Stopped").waitFor();
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await page.screenshot({ path: `${folder}/keys.png` });
  await page.keyboard.press("Escape");
  await page.goto(at("tools", "create_row"));
  await page.getByLabel("values", { exact: true }).waitFor();
  const untouched = await page.locator(".help.bad").count();
  await page.getByLabel("values", { exact: true }).fill("x");
  const wrongValue = await page.locator(".help.bad").innerText();
  await page.screenshot({ path: `${folder}/tool.png` });
  await page.setViewportSize({ width: 1440, height: 900 });

  await page.goto(at("s", "inside", run));
  await page.getByRole("tab", { name: "Run" }).click();
  await page.getByRole("link", { name: /^Its \d+ events$/ }).click();
  await page.getByText("done", { exact: true }).waitFor();
  await page.getByLabel("Filter events").fill("asked");
  await page.getByRole("button", { name: "asked" }).first().click();
  const record = page.locator("#main .facts");
  await record.getByText("Runwire-Version").waitFor();
  const facts = await record.innerText();
  const events = page.url();
  await page.getByRole("button", { name: "curl" }).click();
  const curl = await clipboard();
  await page.getByRole("button", { name: "Test vector" }).click();
  const vector = JSON.parse(await clipboard());
  await page.getByRole("link", { name: "as the model was sent it" }).click();
  const prompt = await page.getByRole("region", { name: "Message 2" }).innerText();
  await page.getByRole("radio", { name: "Cost" }).click();
  await page.getByRole("region", { name: "Cost" }).locator("tfoot").waitFor();
  const cost = await page.getByRole("region", { name: "Cost" }).innerText();

  await page.goto(at("s", "inside", run, "1-0")); // The link to a step.
  await page.getByRole("region", { name: "Result of analyze_table" }).waitFor();
  await page.getByRole("tab", { name: "Artifacts" }).click();
  const link = await page.getByRole("link", { name: /^Link to / }).first().getAttribute("href");
  await page.goto(`${base}/playground${link}`);
  await page.locator("main canvas, .side canvas").first().waitFor(); // In the gallery.

  await page.goto(at("tools"));
  await page.getByRole("searchbox").fill("analyse a table");
  await page.getByRole("link", { name: "analyze_table" }).getByTitle("1 instance").waitFor();
  await page.getByRole("link", { name: "analyze_table" }).click();
  await page.getByLabel("file", { exact: true }).fill("sales.csv");
  await page.getByRole("button", { name: "Call analyze_table" }).click();
  await page.getByText("It is done").waitFor();
  await page.getByRole("radio", { name: "specification" }).click();
  const specification = await page.getByRole("region", { name: "specification of analyze_table" }).innerText();

  await page.keyboard.press("g");
  await page.keyboard.press("p");
  const plan = { type: "tool_calls", calls: [{ tool_name: "send_report", arguments: { to: "ann@example.org", text: "$0.output.x" } }] };
  await page.getByLabel("Plan", { exact: true }).fill(JSON.stringify(plan));
  await page.getByRole("button", { name: "Check" }).click();
  const findings = await page.getByRole("status").innerText();
  await page.goto(at("agents"));
  await page.getByText("Plans all calls first.").waitFor();

  const wrong = await faults(context, [
    [events, "#main .facts"],
    [at("prompts", run), ".msg"],
    [at("cost", run), "tfoot"],
    [at("tools", "analyze_table"), ".tool-page"],
    [at("plan"), "textarea"],
    [at("agents"), ".list-row"],
    [at("more"), ".list-row"],
  ]);
  return { run, waiting, receipt, left: left.length, bar, untouched, wrongValue, facts, curl, vector, prompt, cost, specification, findings, wrong: [...waits, ...wrong] };
});
