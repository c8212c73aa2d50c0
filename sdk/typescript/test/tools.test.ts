import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { z } from "zod";
import { VERSION } from "../src/connection.js";
import { resultReplies } from "../src/tools/protocol.js";
import { type Context, tool, ToolError } from "../src/tools/index.js";

const NOBODY = {} as Context;
const count = tool(
  {
    name: "count",
    description: "Count",
    args: z.object({ text: z.string().describe("any text"), least: z.int().default(0) }),
    result: z.object({ words: z.int(), chart: z.looseObject({}).optional().meta({ artifact: true }) }),
    timeout_s: 5,
  },
  ({ text, least }) => ({ words: Math.max(least, text.split(" ").length) }),
);

test("schemas are made of zod's, with what is default optional and annotations kept", () => {
  const { input_schema, output_schema, ...rest } = count.spec;
  assert.deepEqual(rest, { name: "count", description: "Count", timeout_s: 5 });
  assert.deepEqual(input_schema?.["required"], ["text"]);
  const { text, least } = input_schema?.["properties"] as Record<string, Record<string, unknown>>;
  assert.deepEqual([text?.["description"], least?.["type"], least?.["default"]], ["any text", "integer", 0]);
  const { chart } = output_schema?.["properties"] as Record<string, Record<string, unknown>>;
  assert.equal(chart?.["artifact"], true);
  assert.equal(output_schema?.["additionalProperties"], undefined);
});

test("a function receives checked arguments with their defaults; what is wrong is named by its place", async () => {
  assert.deepEqual(await count.work({ text: "to be" }, NOBODY), { words: 2 });
  const refused = count.work({ text: 1, least: "x" }, NOBODY);
  await assert.rejects(refused, (error) => {
    return error instanceof ToolError && error.code === "invalid_args" && /^text: .*; least: /.test(error.message);
  });
});

test("a large result goes in parts of 1 MB, then an empty result that counts them", () => {
  const text = "ä".repeat(1_200_000);
  const replies = resultReplies(text);
  assert.deepEqual(
    replies.map(({ kind, body, parts }) => [kind, body.length, parts]),
    [["part", 1048576, undefined], ["part", 1048576, undefined], ["part", 302850, undefined], ["result", 0, 3]],
  );
  assert.equal(JSON.parse(Buffer.concat(replies.map(({ body }) => body)).toString()), text);
});

test("the version is that of the package", () => {
  assert.equal(VERSION, (JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as { version: string }).version);
});
