// A long answer while it is written: how often it is drawn, how much of it there is, and how long frames take beside those of an idle page.

import { base, seen } from "./page.mjs";

await seen(async (page) => {
  page.setDefaultTimeout(600_000);
  /** Begins to note the ms between frames, and how often the answer was drawn in one. */
  const watch = () =>
    page.evaluate(() => {
      const noted = (window.noted = { frames: [], drawn: 0, most: 0, draws: 0, added: 0, links: [], watches: true });
      let before = performance.now();
      const frame = (at) => {
        noted.frames.push(at - before);
        before = at;
        noted.most = Math.max(noted.most, noted.drawn);
        noted.drawn = 0;
        if (noted.watches) requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
      new MutationObserver((changes) => {
        const added = changes.filter(({ target }) => target.closest?.(".answer > div")).flatMap(({ addedNodes }) => [...addedNodes]);
        if (!added.length) return;
        noted.drawn += 1;
        noted.draws += 1;
        for (const node of added.filter(({ nodeType }) => nodeType === 1)) {
          noted.added += 1 + node.querySelectorAll("*").length;
          noted.links.push(...[...node.querySelectorAll("a[href]")].map((link) => link.getAttribute("href")));
        }
      }).observe(document.body, { subtree: true, childList: true });
    });
  const noted = () =>
    page.evaluate(() => {
      window.noted.watches = false;
      const sorted = window.noted.frames.toSorted((one, other) => one - other);
      return { count: sorted.length, p50: sorted[sorted.length >> 1], p95: sorted[Math.floor(sorted.length * 0.95)], longest: sorted.at(-1), most: window.noted.most, draws: window.noted.draws, added: window.noted.added, links: [...new Set(window.noted.links)].sort() };
    });

  /** Looks five times a second: what looks in each frame takes time of it. */
  const isShown = () => page.waitForFunction(() => document.querySelector(".verdict") && !document.querySelector(".answer[aria-busy=true]"), null, { polling: 200 });

  await page.goto(`${base}/playground`);
  const question = page.getByRole("textbox", { name: "Question" });
  await question.waitFor();
  await watch();
  await page.waitForTimeout(1_000);
  const idle = await noted();
  await page.getByLabel("Agent").selectOption("scripted");
  await watch();
  await question.fill("Write it all down.");
  await question.press("Enter");
  await isShown();
  const written = await noted();
  const shown = () => page.locator(".answer").evaluate((answer) => ({ nodes: answer.querySelectorAll(":scope > div *").length, blocks: answer.querySelectorAll(":scope > div > *").length, length: answer.textContent.length }));
  const live = await shown();
  await page.getByRole("tab", { name: "Run" }).click();
  const events = await page.getByRole("link", { name: /^Its [\d,]+ events$/ }).innerText();
  await page.reload({ waitUntil: "domcontentloaded" });
  await watch();
  await isShown();
  const read = await noted();
  const again = await shown();
  await page.getByRole("article").getByRole("link", { name: "See events" }).click();
  await page.locator(".events td").first().waitFor();
  return { idle, written, read, live, again, events: Number(events.replace(/\D/g, "")) };
});
