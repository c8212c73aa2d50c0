import type {
  ArtifactPage,
  ArtifactRef,
  LiveTool,
  PauseReply,
  ProposalInput,
  ProposalView,
  PlanReport,
  Prompt,
  ResumeInput,
  RunAccepted,
  RunEvent,
  RunInput,
  RunStatus,
  ScheduleView,
  SessionEvent,
  SessionStatus,
  TaskView,
} from "./contracts.js";
import { Problem } from "./errors.js";
import { type EventRecord, follow, type FollowOptions } from "./stream.js";

export interface ClientOptions {
  /** Of the gateway, such as `http://127.0.0.1:8080`; a path is kept. */
  readonly url: string | URL;
  readonly key?: string | undefined;
  /** For tests and proxies; otherwise the platform's. */
  readonly fetch?: typeof fetch | undefined;
  /** Reads JSON; for whole numbers that are too large for a number. */
  readonly parse?: ((text: string) => unknown) | undefined;
}

export interface RunPage {
  readonly runs: RunStatus[];
  readonly next_cursor: string | null;
}

export type SessionSummary = Pick<SessionStatus, "session_id" | "user_id" | "created_at" | "updated_at" | "runs" | "open_pauses" | "open_tasks" | "open_decisions" | "pending_proposal">;

export interface SessionPage {
  readonly sessions: SessionSummary[];
  readonly next_cursor: string | null;
}

export interface Agent {
  readonly name: string;
  readonly models: string[];
  /** Whether one of its models takes images. */
  readonly sees_images: boolean;
  readonly description: string;
}

/** What a key may do; null: there is no such limit. */
export interface Login {
  readonly tenant: string;
  /** Empty: the gateway has no keys. */
  readonly key_id: string;
  readonly rights: ("run" | "approve" | "apply" | "operate")[];
  readonly user_id: string | null;
  readonly role: string;
  readonly tools: string[] | null;
  readonly agents: string[] | null;
  /** In Unix ms, of a cookie. */
  readonly ends_at: number | null;
}

/** A record of a run without its events. */
export interface RecordHead {
  readonly sequence: number;
  /** When it was stored, in Unix ms. */
  readonly at: number;
  readonly subject: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: number;
}

export interface ListedPage {
  readonly name: string;
  readonly description: string;
  readonly tabs: { name: string; subtabs: string[] }[];
  readonly payloads: string[];
  readonly client_actions: { name: string; description: string }[];
}

export interface Column {
  readonly column_id: string;
  readonly name: string;
  readonly type: "text" | "number" | "date" | "boolean" | "select";
  readonly required: boolean;
  readonly options: string[] | null;
  readonly filterDisplay: "tab" | "dropdown" | null;
}

export interface TableSummary {
  readonly table_id: string;
  readonly name: string;
  readonly description: string;
  readonly version: number;
  readonly rows: number;
}

/** The number of a row, and its cells by the names of the columns. */
export interface TableRow {
  readonly row_id: number;
  readonly cells: Record<string, unknown>;
}

export interface RowPage {
  readonly rows: TableRow[];
  readonly total: number;
  readonly next_cursor: string | null;
}

export interface RowQuery {
  readonly filters?: { column: string; op: string; value: unknown }[];
  readonly limit?: number;
  readonly cursor?: string | undefined;
}

export type Decision = Omit<ResumeInput, "pause_id" | "token" | "images_remove">;
export type Question = Partial<RunInput> & { query: string };

type Query = Record<string, string | number | undefined>;

interface Sent {
  readonly method?: string;
  readonly query?: Query;
  readonly json?: unknown;
  readonly body?: BodyInit;
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal | undefined;
}

/** Speaks to a gateway. Each method is one address of docs/http.md, and throws Problem for what is refused. */
export class Client {
  private readonly base: string;

  constructor(private readonly options: ClientOptions) {
    this.base = String(options.url).replace(/\/+$/, "");
  }

  /** Starts a run. With the same `idempotencyKey` a repeated question is the same run. */
  ask(question: Question, idempotencyKey?: string): Promise<RunAccepted> {
    return this.read("/v1/runs", { method: "POST", json: question, headers: keyed(idempotencyKey) });
  }

  run(id: string): Promise<RunStatus> {
    return this.read(`/v1/runs/${encodeURIComponent(id)}`);
  }

  /** `waits`: only those that wait for a person, each with its pauses. */
  runs(query: { limit?: number; cursor?: string; status?: string; session_id?: string; agent?: string; waits?: "true" } = {}): Promise<RunPage> {
    return this.read("/v1/runs", { query });
  }

  /** The run's records: what has happened, then what happens, until it ends. Reconnects by itself. */
  events(id: string, options: FollowOptions = {}): AsyncGenerator<EventRecord<RunEvent>, void, undefined> {
    return this.follow(`/v1/runs/${encodeURIComponent(id)}/events`, options);
  }

  /** Subjects, sequences and headers of the records of a run, after a sequence; at most 1,000. */
  async records(id: string, after = 0): Promise<RecordHead[]> {
    return (await this.read<{ records: RecordHead[] }>(`/v1/runs/${encodeURIComponent(id)}/records`, { query: { after } })).records;
  }

  /** The prompt of a model call, rendered again; its event `asked` has `turn`, `part` and `attempt`. */
  prompt(id: string, call: { turn: number; part?: number; attempt: number }): Promise<Prompt> {
    return this.read(`/v1/runs/${encodeURIComponent(id)}/prompt`, { query: call });
  }

  async cancel(id: string, reason = ""): Promise<void> {
    await this.send(`/v1/runs/${encodeURIComponent(id)}/cancel`, { method: "POST", json: { reason } });
  }

  /** Decides about a pause. `token` says what was seen: something else that waits by now is refused (409). A decision that may be sent twice has a key. */
  resume(id: string, pause: { pause_id: string; token: string }, decision: Decision, idempotencyKey?: string): Promise<PauseReply> {
    const json = { ...decision, pause_id: pause.pause_id, token: pause.token };
    return this.read(`/v1/runs/${encodeURIComponent(id)}/resume`, { method: "POST", json, headers: keyed(idempotencyKey) });
  }

  /** Adds to a run; the model receives it with its next decision. */
  async input(id: string, text: string): Promise<void> {
    await this.send(`/v1/runs/${encodeURIComponent(id)}/input`, { method: "POST", json: { text } });
  }

  async topUp(id: string, limits: NonNullable<RunInput["limits"]>): Promise<void> {
    await this.send(`/v1/runs/${encodeURIComponent(id)}/top-up`, { method: "POST", json: { limits } });
  }

  sessions(query: { limit?: number; cursor?: string } = {}): Promise<SessionPage> {
    return this.read("/v1/sessions", { query });
  }

  session(id: string): Promise<SessionStatus> {
    return this.read(`/v1/sessions/${encodeURIComponent(id)}`);
  }

  sessionEvents(id: string, options: FollowOptions = {}): AsyncGenerator<EventRecord<SessionEvent>, void, undefined> {
    return this.follow(`/v1/sessions/${encodeURIComponent(id)}/events`, options);
  }

  async tasks(sessionId: string): Promise<TaskView[]> {
    const { tasks } = await this.read<{ tasks: TaskView[] }>("/v1/tasks", { query: { session_id: sessionId } });
    return tasks;
  }

  async decideTask(id: string, decision: "cancel" | "apply" | "reject"): Promise<void> {
    await this.send(`/v1/tasks/${encodeURIComponent(id)}/${decision}`, { method: "POST" });
  }

  artifacts(query: { session_id: string; limit?: number; cursor?: string }): Promise<ArtifactPage> {
    return this.read("/v1/artifacts", { query });
  }

  /** The bytes of an artifact, as an answer whose body can be read or streamed. */
  artifact(id: string, signal?: AbortSignal): Promise<Response> {
    return this.send(`/v1/artifacts/${encodeURIComponent(id)}`, { signal });
  }

  artifactUrl(id: string): string {
    return `${this.base}/v1/artifacts/${encodeURIComponent(id)}`;
  }

  upload(bytes: Blob, query: { session_id?: string; filename?: string; ttl_s?: number } = {}): Promise<ArtifactRef> {
    return this.read("/v1/artifacts", { method: "POST", body: bytes, query });
  }

  async tools(): Promise<LiveTool[]> {
    return (await this.toolList()).tools;
  }

  /** The present tools, and those that are not offered with the reason. */
  toolList(): Promise<{ tools: LiveTool[]; refused: { name: string; reason: string }[] }> {
    return this.read("/v1/tools");
  }

  async agents(): Promise<Agent[]> {
    return (await this.read<{ agents: Agent[] }>("/v1/agents")).agents;
  }

  checkPlan(plan: unknown, outputs?: unknown[]): Promise<PlanReport> {
    return this.read("/v1/plans/check", { method: "POST", json: { plan, ...(outputs ? { outputs } : {}) } });
  }

  /** What the key of this client may do. */
  login(): Promise<Login> {
    return this.read("/v1/login");
  }

  /** Has the browser keep a cookie in place of the key, for pages of the gateway itself. */
  logIn(): Promise<Login> {
    return this.read("/v1/login", { method: "POST" });
  }

  async logOut(): Promise<void> {
    await this.send("/v1/login", { method: "DELETE" });
  }

  /** Calls a tool without a model; the answer is the status of the call's run. */
  call(tool: string, args: Record<string, unknown>): Promise<RunStatus> {
    return this.read(`/v1/tools/${encodeURIComponent(tool)}/call`, { method: "POST", json: { args } });
  }

  async pages(): Promise<ListedPage[]> {
    return (await this.read<{ pages: ListedPage[] }>("/v1/pages")).pages;
  }

  async tables(): Promise<(TableSummary & { columns: number })[]> {
    return (await this.read<{ tables: (TableSummary & { columns: number })[] }>("/v1/tables", { query: { limit: 500 } })).tables;
  }

  table(id: string): Promise<TableSummary & { columns: Column[] }> {
    return this.read(`/v1/tables/${encodeURIComponent(id)}`);
  }

  rows(tableId: string, { limit, cursor, ...query }: RowQuery = {}): Promise<RowPage> {
    return this.read(`/v1/tables/${encodeURIComponent(tableId)}/rows`, { query: { limit, cursor, query: JSON.stringify(query) } });
  }

  proposal(id: string): Promise<ProposalView> {
    return this.read(`/v1/proposals/${encodeURIComponent(id)}`);
  }

  /** Applies a proposal, or some of its operations; one that takes long is `applying` in the answer. */
  applyProposal(id: string, choice: ProposalInput = {}): Promise<ProposalView> {
    return this.read(`/v1/proposals/${encodeURIComponent(id)}/apply`, { method: "POST", json: choice });
  }

  dismissProposal(id: string): Promise<ProposalView> {
    return this.read(`/v1/proposals/${encodeURIComponent(id)}/dismiss`, { method: "POST" });
  }

  async schedules(): Promise<ScheduleView[]> {
    return (await this.read<{ schedules: ScheduleView[] }>("/v1/schedules")).schedules;
  }

  /** One of the schedules, with its next three times. */
  schedule(id: string): Promise<ScheduleView> {
    return this.read(`/v1/schedules/${encodeURIComponent(id)}`);
  }

  private follow<Event extends { type: string }>(path: string, options: FollowOptions) {
    const open = (last: string, signal: AbortSignal) =>
      this.fetch(path, { signal, headers: { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) } });
    return follow<Event>(open, options, this.options.parse);
  }

  private async read<Answer>(path: string, sent: Sent = {}): Promise<Answer> {
    const { parse = JSON.parse } = this.options;
    return parse(await (await this.send(path, sent)).text()) as Answer;
  }

  private async send(path: string, sent: Sent): Promise<Response> {
    const response = await this.fetch(path, sent);
    if (!response.ok) throw await Problem.of(response);
    return response;
  }

  private fetch(path: string, { method = "GET", query = {}, json, body, headers = {}, signal }: Sent): Promise<Response> {
    const given = Object.entries(query).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]]));
    const search = given.length ? `?${new URLSearchParams(given)}` : "";
    const { key, fetch: fetched = fetch } = this.options;
    return fetched(`${this.base}${path}${search}`, {
      method,
      signal: signal ?? null,
      body: json === undefined ? (body ?? null) : JSON.stringify(json),
      headers: {
        ...(json === undefined ? {} : { "Content-Type": "application/json" }),
        ...(key === undefined ? {} : { Authorization: `Bearer ${key}` }),
        ...headers,
      },
    });
  }
}

function keyed(idempotencyKey: string | undefined): Record<string, string> {
  return idempotencyKey === undefined ? {} : { "Idempotency-Key": idempotencyKey };
}
