// A gateway with keys: signing in and out, what a key that only reads is shown, and what other pages cannot do meanwhile.
//
// node signin.mjs <gateway> <folder> <browser> <key> <key that only reads>

import { createServer } from "node:http";
import { faults } from "./axe.mjs";
import { base, folder, seen } from "./page.mjs";

const [key, reader] = process.argv.slice(5);
const other = createServer((request, response) => response.setHeader("Content-Type", "text/html").end(`<!doctype html><title>Another page</title>
  <iframe src="${base}/playground"></iframe>
  <form method="post" action="${base}/v1/runs" enctype="text/plain"><input name='{"query": "forged", "user_id": "' value='"}' /></form>`));
await new Promise((done) => other.listen(0, "127.0.0.1", done));

await seen(async (page, context) => {
  const signIn = async (given) => {
    await page.getByLabel("API key").fill(given);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  await page.goto(`${base}/playground`);
  await signIn("rw_wrong");
  const refused = await page.getByRole("alert").innerText();
  const wrong = await faults(context, [[`${base}/playground`, "#key"]]);
  await signIn(key);
  const question = page.getByRole("textbox", { name: "Question" });
  await question.fill('Send a report to ann@example.org: "All is well"');
  await question.press("Enter");
  await page.getByRole("button", { name: "Approve" }).waitFor();
  const conversation = page.url();
  await page.reload();
  await page.getByRole("button", { name: "Approve" }).waitFor();
  const [cookie] = await context.cookies();
  const kept = await page.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }]));
  await page.screenshot({ path: `${folder}/signed-in.png` });

  const runs = () => page.evaluate(async () => (await (await fetch("v1/runs")).json()).runs.length);
  const before = await runs();
  const elsewhere = await context.newPage(); // Of the same site for a browser, since only the port differs.
  await elsewhere.goto(`http://127.0.0.1:${other.address().port}`);
  const framed = await elsewhere.frames()[1].evaluate(() => document.body.innerText).catch(() => "");
  const script = async ([url, init]) => fetch(url, { credentials: "include", ...init }).then((answer) => `${answer.type} ${answer.status}`, () => "no answer");
  const forged = { method: "POST", body: '{"query": "forged"}' };
  const asked = [];
  for (const init of [{}, forged, { ...forged, mode: "no-cors" }, { method: "DELETE" }]) asked.push(await elsewhere.evaluate(script, [`${base}/v1/runs`, init]));
  const [answer] = await Promise.all([elsewhere.waitForResponse(`${base}/v1/runs`), elsewhere.evaluate(() => document.forms[0].submit())]);
  const posted = answer.status();
  await elsewhere.close();
  const after = await runs();

  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("API key").waitFor();
  const left = (await context.cookies()).length;
  await signIn(reader);
  await page.getByText("Your key reads").waitFor();
  await page.goto(conversation);
  await page.getByRole("region", { name: "arguments of the call" }).waitFor();
  const offered = await page.locator("main button, main textarea").allInnerTexts();
  return { refused, wrong, cookie, kept, before, after, framed, asked, posted, left, offered };
});
other.close();
other.closeAllConnections();
