// The first minute's table, a page of one's own, the gallery, a replay, the search, schedules; and what a finished turn offers.

import { faults } from "./axe.mjs";
import { base, PIXEL, seen } from "./page.mjs";

await seen(async (page, context) => {
  const question = page.getByRole("textbox", { name: "Question" });
  await page.goto(`${base}/playground`);
  await page.getByLabel("Images", { exact: true }).setInputFiles({ name: "picked.png", mimeType: "image/png", buffer: PIXEL });
  await question.fill("How large is this image?");
  await page.waitForFunction(() => !document.querySelector(".picks [aria-busy=true]"));
  await question.press("Enter");
  await page.locator(".verdict").waitFor();
  await question.fill("Which region grew most in sales.csv? Draw a chart.");
  await question.press("Enter");
  await page.locator(".verdict").nth(1).waitFor();
  const session = page.url();
  await page.getByRole("tab", { name: "Artifacts" }).click();
  await page.getByRole("link", { name: "as a gallery" }).click();
  await page.locator(".tile").nth(1).waitFor();
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
  const replay = page.url();
  await slider.fill("0");
  await page.getByRole("button", { name: "5×" }).click();
  const [, run] = /replay\/([0-9a-f]{32})/.exec(replay);
  const { records } = await (await page.request.get(`${base}/v1/runs/${run}/records`)).json();
  const stored = records.slice(1).reduce((sum, { at }, before) => sum + Math.min(5_000, at - records[before].at), 0);
  const shows = async () => (await page.locator(".player .clock").innerText()).split(" / ").map(parseFloat);
  await page.clock.install(); // Its time is the test's from here on.
  await page.clock.pauseAt(Date.now() + 60_000);
  await page.getByRole("button", { name: "Play" }).click();
  await page.clock.runFor(Math.floor(stored / 10));
  const pace = { stored: stored / 1000, half: await shows(), isOver: await page.locator(".verdict").count() };
  await page.clock.runFor(stored);
  await page.locator(".verdict").waitFor();
  pace.whole = await shows();
  await page.clock.resume();

  await page.request.post(`${base}/v1/schedules`, { data: { name: "nightly", cron: "30 2 * * *", time_zone: "Europe/Berlin", run: { query: "What is new?" } } });
  await page.goto(`${base}/playground#/schedules`);
  await page.getByRole("button", { name: "nightly" }).click();
  await page.locator(".times li").nth(2).waitFor();
  const times = await page.locator(".times").innerText();
  const schedule = page.url();
  await page.goto(`${base}/playground#/sessions`);
  await page.getByRole("searchbox").fill("how LARGE");
  const marked = await page.locator("mark").first().innerText();

  await page.goto(`${base}/playground`);
  await page.getByLabel("Agent").selectOption("scripted");
  await question.fill("Gather the findings.");
  await question.press("Enter");
  await page.locator(".verdict").waitFor();
  await page.locator("button.cite").click();
  const cited = await page.evaluate(() => document.activeElement?.textContent?.trim());
  const turn = await page.getByRole("article").innerText();

  await page.goto(`${base}/playground#/pages/orders`);
  await page.getByRole("button", { name: "late" }).click();
  await page.getByRole("button", { name: "weeks" }).click();
  await page.getByLabel("Agent").selectOption("scripted");
  await question.fill("When do they come?");
  const asked = page.waitForRequest((request) => request.method() === "POST");
  await question.press("Enter");
  const { page: place } = (await asked).postDataJSON();
  const fly = page.getByRole("button", { name: "Fly" });
  await fly.waitFor();
  const warned = page.waitForEvent("console", (message) => message.type() === "warning");
  const [unknown] = await Promise.all([warned.then((message) => message.text()), fly.click()]);
  await page.getByRole("button", { name: "Close_Chat", exact: true }).click();
  await question.waitFor({ state: "detached" });
  await page.goto(`${base}/playground`);
  await page.getByRole("button", { name: "I want to track my job applications" }).click();
  await page.getByRole("button", { name: "Dismiss" }).click();
  await page.locator(".proposal").getByText("dismissed").waitFor();
  const wrong = await faults(context, [
    [gallery, ".chart-frame"],
    [replay, ".player"],
    [schedule, ".times li"],
  ]);
  return { tiles, raw, middle, pace, times, marked, cited, turn, unknown, place, wrong };
});
