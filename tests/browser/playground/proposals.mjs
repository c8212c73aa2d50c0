// A table by proposals: made with its sample rows, then changed row by row in the table, some of it; a column that is dismissed.

import { faults } from "./axe.mjs";
import { base, folder, seen } from "./page.mjs";

await seen(async (page, context) => {
  const question = page.getByRole("textbox", { name: "Question" });
  const ask = (text) => question.fill(text).then(() => question.press("Enter"));
  await page.goto(`${base}/playground#/pages/tables_list`);
  await ask("I want to track my university applications");
  const create = page.getByRole("button", { name: "Create table" });
  await create.waitFor();
  const isLocked = await question.isDisabled();
  const schema = await faults(context, [[page.url(), ".table.schema"]]);
  const preview = await page.getByRole("region", { name: /as proposed/ }).innerText();
  await page.getByLabel("Include sample data (2 rows)").check();
  await create.click();
  await page.getByRole("heading", { name: "University Applications", level: 1 }).waitFor(); // The page of the new table.

  await ask("Add two rows, set Stage of row 1 to Offer, set Role of row 77 to Chef and delete row 2");
  await page.getByRole("button", { name: "Apply all 4" }).waitFor();
  const rows = await page.locator("tbody tr").evaluateAll((all) => all.map((row) => [row.className, row.innerText.replace(/\s+/g, " ").trim()]));
  const was = await page.locator("td.cell").getAttribute("title");
  const chips = await page.locator(".chip").count();
  const wrong = await faults(context, [[page.url(), ".proposal-bar"]]);
  await page.setViewportSize({ width: 390, height: 844 }); // On a phone each row is a card, and names its cells.
  const cards = await page.locator("tbody tr").evaluateAll((all) =>
    all.map((row) => {
      const cells = [...row.querySelectorAll("td[data-label]")];
      const named = cells.every((cell) => getComputedStyle(cell, "::before").content === JSON.stringify(cell.dataset.label));
      const [{ left, right }, tops] = [row.getBoundingClientRect(), cells.map((cell) => cell.getBoundingClientRect().top)];
      return { isInside: left >= 0 && right <= innerWidth && document.body.scrollWidth <= innerWidth, named, isList: tops.every((top, at) => !at || top > tops[at - 1]) };
    }),
  );
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.reload(); // It waits still.
  await page.getByRole("checkbox", { name: "Add Company 2" }).uncheck();
  await page.getByRole("button", { name: "Apply 3 of 4" }).click();
  await page.getByText("All 3 changes applied").waitFor();
  await page.locator("tbody tr", { hasText: "Offer" }).waitFor();
  const applied = await page.locator("tbody tr").allInnerTexts();

  await page.getByRole("button", { name: "Interview", exact: true }).click();
  await page.getByText("No row fits the filters").waitFor();
  await page.getByRole("button", { name: "All", exact: true }).click();
  await ask("Add a column called Salary");
  await page.getByText("new: text").waitFor();
  const there = page.url();
  const session = there.replace(/#.*\/(web-\w+)$/, "#/s/$1");
  await page.goto(`${base}/playground#/sessions`);
  await page.getByText("Proposal waits for you").first().waitFor();
  await page.goto(session); // Elsewhere than on its page, the proposal is in its turn.
  await page.getByRole("button", { name: "Dismiss" }).click();
  await page.locator(".proposal").last().getByText("dismissed").waitFor();
  await page.reload();
  await page.locator(".proposal").last().getByText("It proposed 1 change").click();
  await page.locator(".proposal").nth(1).getByText("It proposed 5 changes").click();
  const closed = await page.locator(".proposal").allInnerTexts();
  await page.screenshot({ path: `${folder}/closed.png` });
  await page.goto(there);
  await ask("Thanks");
  await page.getByRole("button", { name: "What can you do?" }).click(); // What it suggests is the next message.
  await page.getByRole("heading", { name: "What can you do?", level: 2 }).waitFor();
  const columns = await (await context.request.get(`${base}/v1/tables`)).json();
  return { isLocked, preview, rows, closed, cards, was, chips, applied, columns: columns.tables[0].columns, wrong: [...schema, ...wrong] };
});
