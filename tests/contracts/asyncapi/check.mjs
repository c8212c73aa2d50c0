// Reads AsyncAPI documents with the official parser and says what it found in each: node check.mjs <file>…
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

const parser = new Parser();
const said = [];
for (const file of process.argv.slice(2)) {
  const { document, diagnostics } = await parser.parse(readFileSync(file, "utf8"));
  const found = diagnostics.map(({ severity, message, path }) => ({ severity, message, path: path.join(".") }));
  const channels = document === undefined ? [] : document.allChannels().all().map((channel) => channel.address());
  said.push({ found, channels, operations: document?.allOperations().all().length ?? 0 });
}
process.stdout.write(JSON.stringify(said));
