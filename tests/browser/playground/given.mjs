// What is given: images with a question and an answer, by picking, paste and drop, with how much is sent; where a conversation stands;
// tables that are sorted, and on a phone; a page that is older than its gateway.

import { faults } from "./axe.mjs";
import { base, PIXEL, seen } from "./page.mjs";

await seen(async (page, context) => {
  const question = page.getByRole("textbox", { name: "Question" });
  const ask = (text, agent = "default") => page.getByLabel("Agent").selectOption(agent).then(() => question.fill(text)).then(() => question.press("Enter"));
  const thumbs = page.getByRole("list", { name: "Images" }).getByRole("listitem");
  const areSent = () => page.waitForFunction(() => !document.querySelector(".picks [aria-busy=true]"));
  /** Gives a place files as a paste or a drop does. */
  const give = (place, type, text = "") =>
    place.evaluate(
      (target, [type, text, bytes]) => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], "given.png", { type: "image/png" }));
        if (text) data.setData("text/plain", text);
        const init = { bubbles: true, cancelable: true, clipboardData: data, dataTransfer: data };
        target.dispatchEvent(type === "paste" ? new ClipboardEvent(type, init) : new DragEvent(type, init));
      },
      [type, text, [...PIXEL]],
    );

  await page.goto(`${base}/playground`);
  const network = await context.newCDPSession(page);
  const limit = (uploadThroughput) => network.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput });
  await limit(400_000);
  await page.evaluate(() => {
    window.percents = new Set();
    new MutationObserver(() => window.percents.add(/Sending (\d+) %/.exec(document.querySelector(".picks")?.textContent)?.[1])).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
  await page.getByLabel("Images", { exact: true }).setInputFiles({ name: "large.png", mimeType: "image/png", buffer: Buffer.alloc(1_000_000) });
  await areSent();
  await limit(-1);
  const percents = await page.evaluate(() => [...window.percents].map(Number).filter((each) => each > 0 && each < 100));
  await page.getByRole("button", { name: "Remove large.png" }).click();
  await page.getByLabel("Images", { exact: true }).setInputFiles({ name: "picked.png", mimeType: "image/png", buffer: PIXEL });
  for (const given of [["paste"], ["drop"], ["paste", "a text with a picture of it"]]) await give(question, ...given);
  await page.getByLabel("Agent").selectOption("scripted");
  await page.getByText("cannot see images").waitFor();
  const picked = await thumbs.count();
  await areSent();
  await page.getByRole("button", { name: "Remove picked.png" }).click();
  await page.reload();
  await thumbs.nth(1).locator("img").waitFor(); // They are there still, from the store.
  const kept = await thumbs.count();
  await question.fill("How large are these images?");
  await question.dispatchEvent("keydown", { key: "Enter", isComposing: true });
  const isAsked = (await page.locator(".turn").count()) > 0;
  await ask("How large are these images?");
  await page.locator(".ask .thumbs img").nth(1).waitFor();
  await page.locator(".verdict").waitFor();

  await ask("Paint the door in a colour that I choose");
  const colour = page.getByLabel("colour", { exact: true });
  await page.getByLabel("Images of the answer").setInputFiles({ name: "door.png", mimeType: "image/png", buffer: PIXEL });
  await give(colour, "paste");
  await give(page.locator(".approval"), "drop");
  await areSent();
  await page.reload();
  await thumbs.nth(2).locator("img").waitFor();
  await page.getByRole("button", { name: "Remove door.png" }).click();
  const waiting = page.url();
  const wrong = await faults(context, [[waiting, ".approval"]]);
  await colour.fill("green");
  await page.getByRole("button", { name: "Answer", exact: true }).click();
  await page.getByRole("article").nth(1).locator(".ask .thumbs img").nth(1).waitFor();
  await page.locator(".verdict").nth(1).waitFor();
  const answered = await page.locator(".answer").nth(1).innerText();

  await page.goto(`${base}/playground`);
  await ask("Gather the findings.", "scripted");
  await page.locator(".verdict").waitFor();
  const cells = page.locator(".artifact td:first-child");
  const sorted = [await cells.allInnerTexts()];
  for (let click = 0; click < 2; click += 1) {
    await page.getByRole("button", { name: "share" }).click();
    sorted.push(await cells.allInnerTexts());
  }

  const [opened] = await Promise.all([context.waitForEvent("page"), page.getByRole("button", { name: "Open the PDF" }).click()]);
  await opened.waitForURL(/^blob:/); // In the viewer of the browser, which this page's policy does not hinder.
  await opened.close();

  await page.goto(`${base}/playground#/pages/orders`);
  await page.getByRole("button", { name: "late" }).click();
  await ask("When do they come?", "scripted");
  await page.getByRole("button", { name: "Fly" }).waitFor();
  await page.getByRole("link", { name: "Open as session" }).click();
  await page.getByRole("link", { name: "Page orders" }).waitFor();
  const asked = page.waitForRequest((request) => request.method() === "POST");
  await ask("And the others?");
  const { page: place } = (await asked).postDataJSON();
  await page.getByRole("link", { name: "Page orders" }).click();
  await page.getByRole("heading", { name: "Orders", level: 1 }).waitFor();

  await page.route("**/playground", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: (await answer.text()).replaceAll("index-", "index-of-tomorrow-") });
  });
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.getByText("This page is older than its gateway").waitFor();
  await page.unroute("**/playground");
  await page.getByRole("button", { name: "Reload it" }).click();
  await page.getByText("This page is older than its gateway").waitFor({ state: "detached" });
  return { percents, picked, kept, isAsked, answered, sorted, place, wrong };
});
