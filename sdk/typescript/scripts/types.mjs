// Writes src/contracts.ts from contracts/schemas: `npm run types`. The types are those of the gateway's answers and bodies.

import { readFileSync, writeFileSync } from "node:fs";
import { compile } from "json-schema-to-typescript";

const SCHEMAS = new URL("../../../contracts/schemas/", import.meta.url);
const NAMES = [
  "ArtifactPage",
  "ArtifactRef",
  "FinalPayload",
  "InputInput",
  "LiveTool",
  "OpenPause",
  "PauseReply",
  "ProposalInput",
  "ProposalView",
  "PlanReport",
  "Prompt",
  "ResumeInput",
  "RunAccepted",
  "RunEvent",
  "RunInput",
  "RunStatus",
  "ScheduleView",
  "SessionEvent",
  "SessionStatus",
  "TaskView",
  "ToolCall",
  "ToolSpec",
];

/** Without titles of properties: each would become a type of its own. A `type` that can only be one text is always there. */
function plain(schema) {
  if (Array.isArray(schema)) return schema.map(plain);
  if (schema === null || typeof schema !== "object") return schema;
  const { title, discriminator, ...rest } = schema;
  const named = typeof title === "object" ? { title } : {};
  if (rest.properties?.type?.const) rest.required = [...new Set([...(rest.required ?? []), "type"])];
  return Object.fromEntries(Object.entries({ ...rest, ...named }).map(([name, value]) => [name, plain(value)]));
}

const definitions = {};
for (const name of NAMES) {
  const { $defs = {}, $schema, ...own } = JSON.parse(readFileSync(new URL(`${name}.json`, SCHEMAS), "utf8"));
  for (const [key, schema] of Object.entries({ ...$defs, [name]: own })) definitions[key] = { ...plain(schema), title: key };
}
definitions.KnownEvent = {
  title: "KnownEvent",
  description: "An event of a type that this version knows.",
  oneOf: definitions.RunEvent.anyOf.filter(({ $ref }) => $ref !== "#/$defs/UnknownEvent"),
};
NAMES.push("KnownEvent");
const properties = Object.fromEntries(NAMES.map((name) => [name, { $ref: `#/$defs/${name}` }]));
const root = { $defs: definitions, type: "object", properties, required: NAMES, additionalProperties: false };
const text = await compile(root, "Contracts", {
  additionalProperties: false,
  bannerComment: "// Made from contracts/schemas by `npm run types`; do not edit.",
  style: { printWidth: 120 },
});
writeFileSync(new URL("../src/contracts.ts", import.meta.url), text);
