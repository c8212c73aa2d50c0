// The picture of the README: `node picture.mjs <gateway> <folder> <what browser.mjs prints>` beside `runwire up` writes playground.png into the folder.

import { base, folder, seen } from "./page.mjs";

await seen(async (page) => {
  await page.setViewportSize({ width: 1200, height: 720 });
  await page.goto(`${base}/playground`);
  await page.getByRole("button", { name: "Which region grew most" }).click();
  await page.locator(".verdict").waitFor();
  await page.getByRole("button", { name: /analyze_table/ }).waitFor();
  await page.locator(".scroll.conv").evaluate((scroller) => scroller.scrollTo(0, 0));
  await page.waitForTimeout(500);
  await page.screenshot({ path: `${folder}/playground.png` });
  return {};
});
