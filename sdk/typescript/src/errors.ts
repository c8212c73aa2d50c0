/** What the gateway refused, as it says it (`application/problem+json`). */
export class Problem extends Error {
  override readonly name = "Problem";

  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    /** Everything else of the answer: `errors`, `run_id`, `pauses`. */
    readonly body: Readonly<Record<string, unknown>> = {},
    /** Seconds after which the request may be repeated. */
    readonly retryAfterS?: number,
  ) {
    super(detail);
  }

  /** Whether the same request may succeed later. */
  get isTemporary(): boolean {
    return this.status >= 500 || this.status === 408 || this.status === 429;
  }

  static async of(response: Response): Promise<Problem> {
    const body = (await response.json().catch(() => ({}))) as Record<string, unknown>;
    const detail = typeof body["detail"] === "string" ? body["detail"] : `The gateway answered ${response.status}.`;
    const code = typeof body["code"] === "string" ? body["code"] : "";
    const after = Number(response.headers.get("retry-after") ?? "");
    return new Problem(response.status, code, detail, body, after > 0 ? after : undefined);
  }
}
