export { connected } from "../connection.js";
export { follow, type Gateway, pauses } from "./follow.js";
export { isTerminal, type Kind, type RunRecord, stored } from "./record.js";
