// Where one can go: the places of everybody, and those of people who build.

export interface Place {
  readonly view: string;
  readonly icon: string;
  readonly word: string;
}

export const PLACES: readonly Place[] = [
  { view: "sessions", icon: "sessions", word: "Sessions" },
  { view: "pages", icon: "table", word: "Pages" },
  { view: "approvals", icon: "shield", word: "Approvals" },
  { view: "schedules", icon: "clock", word: "Schedules" },
];
export const INSIDE: readonly Place[] = [
  { view: "tools", icon: "wrench", word: "Tools" },
  { view: "agents", icon: "agent", word: "Agents and pages" },
  { view: "plan", icon: "plan", word: "Plan checker" },
];
