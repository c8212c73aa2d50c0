// One path through the playground: ask, watch a chart, decide after a reload and in a second tab, find it again, on a phone, in the dark.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { base, folder, seen } from "./page.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What is wrong with the page for people who do not see it or use no mouse. It is judged in a copy without the policy. */
async function faults(context, url, scheme, ready) {
  const copy = await context.browser().newContext({ bypassCSP: true, colorScheme: scheme, viewport: { width: 390, height: 800 }, reducedMotion: "reduce" });
  const page = await copy.newPage();
  await page.goto(url);
  await page.locator(ready).first().waitFor();
  await page.screenshot({ path: `${folder}/${scheme}-${ready.replace(/\W+/g, "")}.png` });
  await page.evaluate(AXE);
  const { violations } = await page.evaluate("axe.run()");
  await copy.close();
  return violations.map(({ id, nodes }) => `${id} ${scheme} ${url}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`);
}

await seen(async (page, context) => {
  const done = (turn) => page.getByRole("article").nth(turn).locator(".strip").getByText("Done").waitFor();
  await page.goto(base);
  await page.getByRole("button", { name: "Which region grew most" }).click();
  await page.locator(".chart-frame canvas").waitFor();
  await done(0);
  const answer = await page.locator(".answer").innerText();
  await page.getByRole("button", { name: /analyze_table/ }).click();
  const result = await page.getByRole("region", { name: "Result of analyze_table" }).innerText();
  await page.screenshot({ path: `${folder}/answer.png` });

  const question = page.getByRole("textbox", { name: "Question" });
  await question.fill('Send a report to ann@example.org: "All is well"');
  await question.press("Enter");
  await page.getByRole("button", { name: "Approve" }).waitFor();
  await page.reload();
  const second = await context.newPage();
  await second.goto(page.url());
  await second.getByLabel("text", { exact: true }).fill("All is well indeed");
  await second.getByRole("button", { name: "Approve with 1 change" }).click();
  await done(1);
  await second.close();
  await page.getByRole("button", { name: /send_report/ }).click();
  const approved = await page.getByRole("region", { name: "Arguments of send_report" }).innerText();
  const session = page.url();

  await page.getByRole("article").nth(1).getByRole("link", { name: "See events" }).click();
  await page.getByRole("button", { name: "resumed", exact: true }).waitFor();
  const events = page.url();
  await page.getByRole("link", { name: "Sessions" }).first().click();
  const listed = await page.locator("a.session").first().innerText();
  const wrong = [];
  for (const scheme of ["light", "dark"]) {
    wrong.push(...(await faults(context, base, scheme, ".example")));
    wrong.push(...(await faults(context, session, scheme, ".verdict")));
    wrong.push(...(await faults(context, events, scheme, ".events td")));
    wrong.push(...(await faults(context, `${base}/playground#/sessions`, scheme, "a.session")));
    wrong.push(...(await faults(context, `${base}/playground#/tools`, scheme, ".tool-row")));
  }
  return { answer, result, approved, listed, wrong };
});
