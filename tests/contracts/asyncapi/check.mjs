// Reads an AsyncAPI document with the official parser and says what it found: node check.mjs <file>.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

const { document, diagnostics } = await new Parser().parse(readFileSync(process.argv[2], "utf8"));
const found = diagnostics.map(({ severity, message, path }) => ({ severity, message, path: path.join(".") }));
const channels = document === undefined ? [] : document.allChannels().all().map((channel) => channel.address());
process.stdout.write(JSON.stringify({ found, channels, operations: document?.allOperations().all().length ?? 0 }));
