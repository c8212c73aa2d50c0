import type { StandardJSONSchemaV1, StandardSchemaV1 } from "@standard-schema/spec";
import type { ToolSpec } from "../contracts.js";
import { type Context, ToolError } from "./protocol.js";

export type Work = (args: Record<string, unknown>, context: Context) => Promise<unknown>;

export interface Tool {
  readonly spec: ToolSpec;
  readonly work: Work;
}

/** A schema of zod 4.2 or newer, or of any library that makes JSON Schema by the same standard. */
export type Schema<In, Out> = StandardSchemaV1<In, Out> & StandardJSONSchemaV1<In, Out>;

/** What a tool says about itself. `result` describes what its function returns; without it anything goes. */
export interface About<In, Args, Result> extends Omit<ToolSpec, "input_schema" | "output_schema" | "heartbeat_s"> {
  readonly description: string;
  readonly args: Schema<In, Args>;
  readonly result?: Schema<Result, unknown>;
}

/** A tool of a function, which receives what the schema `args` makes of a call: with its defaults, and checked. */
export function tool<In, Args, Result = unknown>(
  { args, result, ...about }: About<In, Args, Result>,
  work: (args: Args, context: Context) => Result | Promise<Result>,
): Tool {
  const { validate, jsonSchema } = args["~standard"];
  return {
    spec: {
      ...about,
      input_schema: jsonSchema.input({ target: "draft-2020-12" }),
      ...(result ? { output_schema: result["~standard"].jsonSchema.input({ target: "draft-2020-12" }) } : {}),
    },
    async work(given, context) {
      const checked = await validate(given);
      if (!checked.issues) return work(checked.value, context);
      const wrong = checked.issues.map(({ message, path = [] }) => {
        const place = path.map((part) => (typeof part === "object" ? part.key : part));
        return [place.join("."), message].filter(Boolean).join(": ");
      });
      throw new ToolError(wrong.join("; "), "invalid_args");
    },
  };
}
