// One path through the playground, as somebody takes it who sees it for the first time: asked, watched, stopped, decided, found again.

import { faults } from "./axe.mjs";
import { base, folder, PIXEL, seen } from "./page.mjs";

const at = (...parts) => `${base}/playground#/${parts.join("/")}`;

await seen(async (page, context) => {
  const question = page.getByRole("textbox", { name: "Question" });
  const ask = (text) => question.fill(text).then(() => question.press("Enter"));
  const turn = (number) => page.getByRole("article").nth(number);
  const ended = (number, word = "Done") => turn(number).locator(".strip").getByText(word, { exact: true }).waitFor();
  const region = (name) => page.getByRole("region", { name }).innerText();

  await page.goto(base);
  await page.getByRole("button", { name: "Which region grew most" }).click();
  await page.locator(".chart-frame canvas").waitFor();
  await ended(0);
  const answer = await page.locator(".answer").innerText();
  await page.getByRole("button", { name: /analyze_table/ }).click();
  const result = await region("Result of analyze_table");
  await page.screenshot({ path: `${folder}/answer.png` });

  await page.route("**/v1/artifacts?*", (route) => setTimeout(() => void route.continue(), 500)); // Sent before its image is there.
  await page.getByLabel("Images", { exact: true }).setInputFiles({ name: "pixel.png", mimeType: "image/png", buffer: PIXEL });
  await ask("How large is this image?");
  await turn(1).locator(".thumbs img").waitFor();
  await ended(1);
  await ask("Brew coffee");
  await page.getByRole("button", { name: /^brew_coffee/ }).waitFor();
  await page.keyboard.press("Escape");
  await ended(2, "Stopped");

  await ask('Send a report to ann@example.org: "All is well"');
  await page.getByRole("button", { name: "Approve" }).waitFor();
  await page.reload();
  const second = await context.newPage();
  await second.goto(page.url());
  await second.getByLabel("text", { exact: true }).fill("All is well indeed");
  await second.getByRole("button", { name: "Approve with 1 change" }).click();
  await ended(3);
  await second.close();
  await page.reload();
  await turn(3).getByText("Approved with 1 change").click();
  const decided = await turn(3).getByRole("region", { name: "Decision" }).innerText();
  await page.screenshot({ path: `${folder}/decided.png` });
  await page.getByRole("button", { name: /send_report/ }).click();
  const approved = await region("Arguments of send_report");
  const session = page.url();

  await ask("Do this in the background: Which region grew most in sales.csv?");
  await page.getByRole("tab", { name: "Tasks" }).click();
  await page.getByText("1 of 1 ended").waitFor();
  await ended(5); // The report on it, which nobody asked for.
  const reported = await turn(5).innerText();

  await page.getByRole("tab", { name: "Artifacts" }).click();
  await page.getByRole("link", { name: "as a gallery" }).click();
  const gallery = page.url();
  await page.locator(".tile", { hasText: "analyze_table" }).first().click();
  await page.locator(".side canvas").waitFor();
  await page.goto(session);
  await turn(0).getByRole("link", { name: "Replay" }).click();
  await page.getByRole("button", { name: "5×" }).click();
  await page.getByRole("button", { name: "Play" }).click();
  await page.locator(".verdict").waitFor();
  await page.goto(session);
  await turn(3).getByRole("link", { name: "See events" }).click();
  await page.getByRole("button", { name: "resumed", exact: true }).waitFor();
  const events = page.url();
  await page.getByRole("radio", { name: "Prompts" }).click();
  const prompt = await region("Message 2");
  await page.getByRole("radio", { name: "Cost" }).click();
  await page.getByRole("region", { name: "Cost" }).locator("tfoot").waitFor();

  await page.goto(base);
  await page.getByRole("button", { name: "I want to track my job applications" }).click();
  await page.getByRole("button", { name: "Create table" }).click();
  await page.getByRole("heading", { name: "Job Applications", level: 1 }).waitFor();
  await ask("Add two rows");
  await page.getByRole("button", { name: "Apply all 2" }).click();
  await page.getByText("All 2 changes applied").waitFor(); // Until then they are proposed, then they are read anew.
  await page.locator("tbody tr").nth(1).waitFor();
  const rows = await page.locator("tbody tr").count();

  await page.goto(at("tools", "analyze_table"));
  await page.getByLabel("file", { exact: true }).fill("sales.csv");
  await page.getByRole("button", { name: "Call analyze_table" }).click();
  await page.getByText("It is done").waitFor();
  for (const [view, heading] of [["agents", "Agents and pages"], ["schedules", "Schedules"], ["approvals", "Approvals"], ["plan", "Plan checker"]]) {
    await page.goto(at(view));
    await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
  }
  await page.getByRole("link", { name: "Sessions" }).first().click();
  await page.getByRole("searchbox").fill("HOW large");
  const listed = await page.locator("a.session", { has: page.locator("mark") }).first().innerText();
  const wrong = await faults(context, [
    [base, ".example"],
    [session, ".verdict"],
    [gallery, ".tile"],
    [events, ".events td"],
    [at("sessions"), "a.session"],
    [at("tools"), ".list-row"],
  ]);
  return { answer, result, approved, decided, reported, prompt, rows, listed, wrong };
});
