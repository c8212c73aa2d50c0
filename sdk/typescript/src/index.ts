export * from "./client.js";
export type * from "./contracts.js";
export { Problem } from "./errors.js";
export * from "./stream.js";
