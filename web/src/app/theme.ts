const NAMES = ["system", "light", "dark"] as const;
export type Theme = (typeof NAMES)[number];

export function theme(): Theme {
  const stored = localStorage.getItem("theme");
  return NAMES.find((name) => name === stored) ?? "system";
}

export function setTheme(name: Theme): void {
  localStorage.setItem("theme", name);
  if (name === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = name;
}

export function nextTheme(): Theme {
  const next = NAMES[(NAMES.indexOf(theme()) + 1) % NAMES.length] ?? "system";
  setTheme(next);
  return next;
}
