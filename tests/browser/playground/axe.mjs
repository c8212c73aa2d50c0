// What is wrong with views for people who do not see them or use no mouse.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { folder } from "./page.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let number = 0;

/** The views are judged in a copy of the page without its policy; pictures of them are kept in the folder. */
export async function faults(context, views) {
  const copy = await context.browser().newContext({ bypassCSP: true, viewport: { width: 390, height: 800 }, reducedMotion: "reduce" });
  const found = [];
  for (const [url, ready] of views) {
    number += 1;
    const page = await copy.newPage();
    await page.goto(url);
    await page.locator(ready).first().waitFor();
    await page.evaluate(AXE);
    for (const [colorScheme, rules] of [["light", {}], ["dark", { runOnly: ["color-contrast"] }]]) { // All else is the same in the dark.
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: `${folder}/${number}-${colorScheme}.png` }); // It shows the other colours from now on.
      await page.evaluate(() => Promise.all(document.getAnimations().flatMap((each) => (each instanceof CSSTransition ? each.finished : [])))); // Colours have changed.
      const { violations } = await page.evaluate((chosen) => axe.run(chosen), rules);
      found.push(...violations.map(({ id, nodes }) => `${id} ${colorScheme} ${url}: ${nodes.map(({ html }) => html.slice(0, 160))}`));
    }
    await page.close();
  }
  await copy.close();
  return found;
}
