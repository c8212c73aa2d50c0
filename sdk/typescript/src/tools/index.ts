export type { ToolCall, ToolSpec } from "../contracts.js";
export { connected } from "../connection.js";
export { main } from "./main.js";
export { type Context, Pause, type Question, ToolError } from "./protocol.js";
export { serve, type Served } from "./serve.js";
export { type About, type Schema, type Tool, tool, type Work } from "./tool.js";
