// What the scripts of this folder share: a page in Chromium that notes what a page must not do, and its report.

import { chromium } from "playwright-core";

const [base, folder, endpoint] = process.argv.slice(2);
export { base, folder };
export const PIXEL = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");

/** Runs `script` with a page, and prints what was seen as JSON: `{…, errors, foreign, violations}`. */
export async function seen(script) {
  const browser = await chromium.connect(endpoint);
  const notes = { errors: [], foreign: [], violations: [] };
  try {
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, bypassCSP: false, reducedMotion: "reduce" });
    await context.exposeFunction("noteViolation", (text) => notes.violations.push(text));
    await context.addInitScript(() => {
      const note = (event) => window.noteViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
      document.addEventListener("securitypolicyviolation", note);
    });
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    page.on("pageerror", (error) => notes.errors.push(String(error)));
    page.on("dialog", (dialog) => (notes.errors.push(`dialog ${dialog.message()}`), dialog.dismiss()));
    page.on("request", (request) => {
      if (!request.url().startsWith(base) && !request.url().startsWith("blob:")) notes.foreign.push(request.url());
    });
    try {
      Object.assign(notes, await script(page, context));
    } catch (error) {
      await page.screenshot({ path: `${folder}/failed.png` }).catch(() => undefined);
      notes.failed = `${error}\n${page.url()}\n${(await page.locator("body").innerText()).slice(0, 4_000)}`;
    }
  } finally {
    await browser.close();
  }
  console.log(JSON.stringify(notes));
}
