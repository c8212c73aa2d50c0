// A Chromium for several scripts: `node browser.mjs <chromium>` prints where they find it, and ends it with its input.

import { chromium } from "playwright-core";

const server = await chromium.launchServer({ executablePath: process.argv[2], args: ["--no-sandbox", "--disable-dev-shm-usage"] });
console.log(server.wsEndpoint());
process.stdin.resume().on("end", () => server.close());
