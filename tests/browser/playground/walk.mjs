// One path through the playground: ask, watch a chart, decide after a reload and in a second tab, find it again, on a phone, in the dark.

import { faults } from "./axe.mjs";
import { base, folder, seen } from "./page.mjs";

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

  await question.fill("Do this in the background: Which region grew most in sales.csv?");
  await question.press("Enter");
  await page.getByRole("tab", { name: "Tasks" }).click();
  await page.getByText("1 of 1 ended").waitFor();
  await done(3); // The report on it, which nobody asked for.
  const reported = await page.getByRole("article").nth(3).innerText();

  await page.getByRole("article").nth(1).getByRole("link", { name: "See events" }).click();
  await page.getByRole("button", { name: "resumed", exact: true }).waitFor();
  const events = page.url();
  await page.getByRole("link", { name: "Sessions" }).first().click();
  const listed = await page.locator("a.session").first().innerText();
  const wrong = await faults(context, [
    [base, ".example"],
    [session, ".verdict"],
    [events, ".events td"],
    [`${base}/playground#/sessions`, "a.session"],
    [`${base}/playground#/tools`, ".list-row"],
  ]);
  return { answer, result, approved, reported, listed, wrong };
});
