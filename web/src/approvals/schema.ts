// A form of a JSON Schema: one field for each member that a field can show; everything else as JSON.

export type Kind = "text" | "long" | "number" | "flag" | "choice" | "json";

export interface Field {
  readonly name: string;
  readonly label: string;
  readonly kind: Kind;
  readonly hint: string;
  /** Of a value of its type, as JSON. */
  readonly example: string;
  readonly isRequired: boolean;
  readonly choices: readonly unknown[];
}

type Schema = { [name: string]: unknown };

/** Fields of the members of a schema and of those that the value has beside it. */
export function fieldsOf(schema: unknown, value: Record<string, unknown>): Field[] {
  const { properties = {}, required = [] } = (schema ?? {}) as { properties?: Record<string, Schema>; required?: string[] };
  const names = new Set([...Object.keys(properties), ...Object.keys(value)]);
  return [...names].map((name) => field(name, properties[name] ?? {}, value[name], required.includes(name)));
}

function field(name: string, schema: Schema, value: unknown, isRequired: boolean): Field {
  const type = [schema["type"]].flat().find((each) => each !== "null") ?? typed(value);
  const choices = Array.isArray(schema["enum"]) ? (schema["enum"] as unknown[]) : [];
  const kind: Kind = choices.length
    ? "choice"
    : type === "boolean"
      ? "flag"
      : type === "number" || type === "integer"
        ? "number"
        : type !== "string"
          ? "json"
          : String(value ?? "").length > 60 || String(value ?? "").includes("\n")
            ? "long"
            : "text";
  const limits = [schema["maxLength"] && `at most ${schema["maxLength"]} characters`, schema["maximum"] !== undefined && `at most ${schema["maximum"]}`];
  const hint = [String(schema["description"] ?? ""), ...limits.filter(Boolean), isRequired ? "" : "optional"].filter(Boolean).join(", ");
  const example = type === "object" ? `{"name": "value"}` : `["a", "b"]`;
  return { name, label: name.replaceAll("_", " "), kind, hint, example, isRequired, choices };
}

function typed(value: unknown): string {
  if (value === null || value === undefined) return "string";
  return Array.isArray(value) ? "array" : typeof value;
}

/** What a field shows of a value. */
export function shown(kind: Kind, value: unknown): string {
  if (value === undefined || value === null) return "";
  return kind === "json" || kind === "choice" ? JSON.stringify(value) : String(value);
}

/** The value that was written; throws a sentence for what cannot be one. An empty text that is not required is left out: the tool has its own default. */
export function read({ kind, label, example, isRequired }: Field, text: string): unknown {
  if (text === "" && !isRequired) return undefined;
  if (kind === "flag") return text === "true";
  if (kind === "number") {
    const number = Number(text);
    if (text.trim() === "" || Number.isNaN(number)) throw new Error(`${label} is a number.`);
    return number;
  }
  if (kind !== "json" && kind !== "choice") return text;
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${label} is JSON, such as ${example}.`);
  }
}
