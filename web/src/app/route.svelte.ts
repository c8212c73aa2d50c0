// Where the page is: `#/s/<session>/<run>` and the like, so that every place has a link and no server has to know it.

function read(): string[] {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
}

class Route {
  parts = $state.raw<string[]>(read());

  constructor() {
    addEventListener("hashchange", () => (this.parts = read()));
  }

  get view(): string {
    return this.parts[0] ?? "";
  }
}

export const route = new Route();

/** A question for the view that is gone to next. */
export const handed = { question: "" };

export function link(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(...parts: string[]): void {
  location.hash = link(...parts);
}
