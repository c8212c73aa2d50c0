// How the page says times, counts and states.

import type { Run, Status } from "./fold";

export function seconds(ms: number): string {
  if (ms < 950) return `${Math.max(0.01, ms / 1000).toFixed(2)} s`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes}:${String(Math.floor((ms % 60_000) / 1000)).padStart(2, "0")}`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

const HOUR = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat([], { day: "numeric", month: "short" });

export function clock(unixMs: number): string {
  return (new Date(unixMs).toDateString() === new Date().toDateString() ? HOUR : DAY).format(unixMs);
}

export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  return size < 1e6 ? `${(size / 1000).toFixed(1)} KB` : `${(size / 1e6).toFixed(1)} MB`;
}

export function money(dollars: number): string {
  if (dollars === 0) return "$0";
  return `$${dollars < 0.1 ? dollars.toFixed(4) : dollars.toFixed(2)}`;
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export const STATES: Record<Status, { word: string; icon: string; tone: string }> = {
  queued: { word: "Queued", icon: "clock", tone: "" },
  running: { word: "Running", icon: "spin", tone: "run" },
  answering: { word: "Answering", icon: "spin", tone: "run" },
  stopping: { word: "Stopping", icon: "spin", tone: "warn" },
  waiting: { word: "Waits for you", icon: "hourglass", tone: "warn" },
  paused: { word: "Paused", icon: "hourglass", tone: "warn" },
  done: { word: "Done", icon: "check", tone: "ok" },
  error: { word: "Failed", icon: "x", tone: "bad" },
  cancelled: { word: "Stopped", icon: "stop", tone: "" },
};

/** What a run does now, or what it did. */
export function doing(run: Run): string {
  const open = run.rows.filter((row) => row.ended === undefined && row.kind !== "model");
  const calls = run.rows.filter((row) => row.kind !== "model");
  const models = run.rows.filter((row) => row.kind === "model");
  if (run.status === "waiting") return `${run.pauses[0]?.tool ?? "A question"}: nothing of it happens before you decide`;
  if (run.status === "paused") return run.budget;
  if (run.status === "stopping") return "No more of the answer is written";
  if (run.hasEnded) return `${count(models.length, "model call")}, ${count(calls.length, "tool call")}`;
  const newest = open.at(-1);
  if (open.length > 1) return `${open.length} calls at once, ${calls.length - open.length} done`;
  if (newest) return newest.progress ? `${newest.title}: ${newest.progress}` : newest.title;
  return run.status === "queued" ? "Waits for its turn" : run.model;
}
