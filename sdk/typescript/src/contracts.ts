// Made from contracts/schemas by `npm run types`; do not edit.

/**
 * The body of `POST /v1/runs/{run_id}/input`.
 */
export type InputInput = InputInput1 & InputInput2;
export type InputInput1 =
  | {
      text: {
        [k: string]: unknown;
      };
    }
  | {
      images: {
        [k: string]: unknown;
      };
    };
/**
 * An image of a question: a stored artifact, or its bytes as a data URL (`data:image/png;base64,…`).
 */
export type ImageInput = ImageInput1 & ImageInput2;
export type ImageInput1 =
  | {
      artifact_id: string;
    }
  | {
      data: string;
    };
export type RunEvent =
  | Queued
  | RunStarted
  | Attached
  | Triaged
  | Asked
  | Step
  | Called
  | Redelivered
  | Observed
  | Repaired
  | ModelFailed
  | Compacted
  | PayloadProposed
  | Paused
  | ToppedUp
  | Resumed
  | InputAdded
  | TaskSettled
  | TasksPaused
  | Yielded
  | Stopping
  | Done
  | Error
  | Cancelled
  | Deleted
  | Chunk
  | Thinking
  | BlockStarted
  | CallStarted
  | ToolProgress
  | ArtifactChunk
  | ArtifactStored
  | ControlAnswered
  | UnknownEvent;
export type SessionEvent =
  | (
      | SessionStarted
      | RunQueued
      | RunBegun
      | RunYielded
      | InputForwarded
      | RunMergedInto
      | InputMissed
      | RunRefusedBySession
      | RunWaits
      | RunEnded
      | ContextSet
      | Summarised
      | ApprovedForSession
      | RunsForgotten
      | SessionDeleting
      | SessionDeleted
      | Checkpoint
      | GroupOpened
      | TaskSpawned
      | WaiterAdded
      | WaiterReleased
      | SpawnRefused
      | GroupSealed
      | TaskEnded
      | TasksCancelled
      | GroupEnded
      | ResultsMerged
      | ResultsRejected
      | Reported
      | TaskControlDone
      | TaskControlRefused
      | ProposalPending
      | ProposalApplying
      | ProposalApplied
      | ProposalReleased
      | ProposalDismissed
      | ProposalSuperseded
    )
  | UnknownEvent;
/**
 * An event of a type that this version knows.
 */
export type KnownEvent =
  | Queued
  | RunStarted
  | Attached
  | Triaged
  | Asked
  | Step
  | Called
  | Redelivered
  | Observed
  | Repaired
  | ModelFailed
  | Compacted
  | PayloadProposed
  | Paused
  | ToppedUp
  | Resumed
  | InputAdded
  | TaskSettled
  | TasksPaused
  | Yielded
  | Stopping
  | Done
  | Error
  | Cancelled
  | Deleted
  | Chunk
  | Thinking
  | BlockStarted
  | CallStarted
  | ToolProgress
  | ArtifactChunk
  | ArtifactStored
  | ControlAnswered;

export interface Contracts {
  ArtifactPage: ArtifactPage;
  ArtifactRef: ArtifactRef;
  FinalPayload: FinalPayload;
  InputInput: InputInput;
  LiveTool: LiveTool;
  OpenPause: OpenPause;
  PauseReply: PauseReply;
  ProposalInput: ProposalInput;
  ProposalView: ProposalView;
  PlanReport: PlanReport;
  Prompt: Prompt;
  ResumeInput: ResumeInput;
  RunAccepted: RunAccepted;
  RunEvent: RunEvent;
  RunInput: RunInput;
  RunStatus: RunStatus;
  ScheduleView: ScheduleView;
  SessionEvent: SessionEvent;
  SessionStatus: SessionStatus;
  TaskView: TaskView;
  ToolCall: ToolCall;
  ToolSpec: ToolSpec;
  KnownEvent: KnownEvent;
}
/**
 * Artifacts in the order in which they were stored. `next_cursor` null: this is the last page.
 */
export interface ArtifactPage {
  artifacts: StoredArtifact[];
  next_cursor?: number | null;
}
/**
 * A reference with its session and run.
 */
export interface StoredArtifact {
  ref: ArtifactRef;
  session_id?: string | null;
  run_id?: string | null;
  /**
   * the user of the API key that uploaded it
   */
  user_id?: string | null;
}
/**
 * Identifies an artifact of the caller's tenant. It grants no access: the tenant is checked when it is resolved.
 *
 * `json_type` and `items` describe the value, so that a placeholder can be made without reading the bytes. A `str` is
 * stored as its UTF-8 text, `bytes` as they are, any other value as compact UTF-8 JSON. `size` counts the stored
 * bytes.
 */
export interface ArtifactRef {
  /**
   * UUIDv7, 32 lower-case hexadecimal digits
   */
  artifact_id: string;
  mime_type: string;
  /**
   * bytes, as stored
   */
  size: number;
  /**
   * SHA-256 of the stored bytes, lower-case hexadecimal
   */
  sha256: string;
  filename?: string | null;
  namespace?: string | null;
  /**
   * null: an uploaded file
   */
  json_type?: ("dict" | "list" | "str" | "int" | "float" | "bool" | "bytes") | null;
  /**
   * length of a list
   */
  items?: number | null;
  /**
   * how to show it, as its tool declared for the stream: `echarts`
   */
  artifact_type?: string | null;
  /**
   * Unix ms
   */
  created_at?: number | null;
  /**
   * Unix ms; null: kept as long as its run
   */
  expires_at?: number | null;
  /**
   * the id that its tool gave it, any text
   */
  own_id?: string | null;
  skill_id?: string | null;
  skill_name?: string | null;
  /**
   * in an argument: the part that is meant, as names of members and numbers of items
   */
  path?: string[] | null;
}
/**
 * The result of a run, whether it succeeded, spent a budget, was cancelled or failed.
 */
export interface FinalPayload {
  raw_answer: string;
  /**
   * tool -> field -> JSON value or ArtifactRef; from tools only
   */
  artifacts?: {
    [k: string]: {
      [k: string]: unknown;
    };
  };
  /**
   * tool -> field -> what the artifact is, such as `chart`, where the tool or its form tells
   */
  artifact_types?: {
    [k: string]: {
      [k: string]: string;
    };
  };
  confidence?: number | null;
  sources?: Source[];
  /**
   * `partial` if a budget stopped the run, `error` if it failed
   */
  route?: string | null;
  suggested_actions?: SuggestedAction[];
  requires_followup?: boolean;
  warnings?: string[];
  language?: string | null;
  extra?: {
    [k: string]: unknown;
  };
}
/**
 * The source of a statement. A value without a `title` is no source.
 */
export interface Source {
  url?: string | null;
  snippet?: string | null;
  relevance_score?: number | null;
  title: string;
}
/**
 * A suggestion for what the user may do next. The client knows the meaning of `action_id`.
 */
export interface SuggestedAction {
  action_id: string;
  label: string;
  params?: {
    [k: string]: unknown;
  };
}
export interface InputInput2 {
  text?: string;
  /**
   * @maxItems 64
   */
  images?: ImageInput[];
  /**
   * the text replaces the question, and what the model writes now is superseded
   */
  redirect?: boolean;
}
export interface ImageInput2 {
  artifact_id?: string | null;
  /**
   * a data URL in base64; it is stored as an artifact of the run
   */
  data?: string | null;
  /**
   * for people, with `data`
   */
  filename?: string | null;
  detail?: ("low" | "high" | "auto") | null;
}
/**
 * A tool in the catalogue.
 */
export interface LiveTool {
  name: string;
  description?: string;
  /**
   * JSON Schema of `args`; local references only
   */
  input_schema?: {
    [k: string]: unknown;
  };
  /**
   * JSON Schema of the result; None: anything
   */
  output_schema?: {
    [k: string]: unknown;
  } | null;
  /**
   * True: a call may be repeated under the same idempotency key
   */
  idempotent?: boolean;
  side_effects?: "none" | "read" | "write" | "external";
  /**
   * longest time without a reply, in seconds; every reply restarts it
   */
  timeout_s?: number;
  /**
   * each call sends a reply at least this often, from its start, and `.status` is answered
   */
  heartbeat_s?: number | null;
  /**
   * calls at once over all instances
   */
  concurrency?: number;
  tags?: string[];
  /**
   * no call without a person's approval
   */
  requires_approval?: boolean;
  /**
   * models and plans are not offered it; `POST /v1/tools/{name}/call` takes the right `apply`
   */
  hidden?: boolean;
  /**
   * processes that announce it now; 0: it stands in the tools file
   */
  instances?: number;
}
/**
 * An open pause, as people see it.
 */
export interface OpenPause {
  pause_id: string;
  run_id: string;
  reason: "approval" | "input" | "confirmation" | "budget";
  source: "tool" | "policy" | "planner" | "mcp" | "task";
  /**
   * for the person who decides; above 32 KiB an ArtifactRef
   */
  payload?: {
    [k: string]: unknown;
  };
  /**
   * JSON Schema of `input` of an answer
   */
  input_schema?: {
    [k: string]: unknown;
  } | null;
  call_id?: string | null;
  tool?: string | null;
  /**
   * of the call that waits
   */
  arguments?: {
    [k: string]: unknown;
  } | null;
  /**
   * the step that the call belongs to
   */
  step?: number | null;
  /**
   * all calls of that step as `{call_id, tool, args}`, if there are several
   */
  plan?: {
    [k: string]: unknown;
  }[];
  /**
   * the approval rule that asks
   */
  rule?: string | null;
  revision?: number;
  token?: string;
  /**
   * Unix ms
   */
  expires_at: number;
  /**
   * what happens at `expires_at`
   */
  default?: "reject" | "answer";
  default_answer?: {
    [k: string]: unknown;
  };
  title?: string;
}
/**
 * The tool ends this round of the call and asks a person. The call comes again, with the answer.
 *
 * The function runs from its beginning then, so what must not run twice belongs into `state`.
 */
export interface PauseReply {
  /**
   * counts the pauses of the call from 0
   */
  number: number;
  reason?: "approval" | "input" | "confirmation" | "budget";
  payload?: {
    [k: string]: unknown;
  };
  /**
   * JSON Schema of the answer's `input`
   */
  input_schema?: {
    [k: string]: unknown;
  } | null;
  /**
   * at most 32 KiB as JSON
   */
  state?: {
    [k: string]: unknown;
  };
  /**
   * null: 7 days; at most 365
   */
  expires_in_s?: number | null;
  default?: "reject" | "answer";
  default_answer?: {
    [k: string]: unknown;
  };
  title?: string;
}
/**
 * The body of `POST /v1/proposals/{proposal_id}/apply`.
 */
export interface ProposalInput {
  /**
   * numbers of the operations to apply, from 0; null: all. A change of columns is applied as a whole
   */
  operations?: [number, ...number[]] | null;
  /**
   * of a new table: with the sample rows
   */
  include_sample_rows?: boolean;
}
/**
 * A proposal, as HTTP shows it.
 */
export interface ProposalView {
  proposal_id: string;
  session_id: string;
  /**
   * the turn that proposed it
   */
  run_id: string;
  kind: string;
  summary: string;
  state: "pending" | "applying" | "applied" | "dismissed" | "superseded";
  /**
   * as the model proposed it, with the ids of columns
   */
  data: {
    [k: string]: unknown;
  };
  table_id?: string | null;
  /**
   * of the table, when the model saw it
   */
  base_version?: number | null;
  /**
   * the chosen ones, of an apply
   */
  operations?: number[];
  /**
   * the run of the newest apply
   */
  job?: string | null;
  /**
   * of each operation: what came of it, or, while it is pending, what would now come of it
   */
  verdicts?: {
    [k: string]: unknown;
  }[];
  /**
   * of an apply that has ended
   */
  report?: ProposalReport | null;
  /**
   * why the newest apply failed as a whole
   */
  code?: string | null;
  /**
   * the run that took its place
   */
  superseded_by?: string | null;
  /**
   * id of the API key that applied or dismissed it last
   */
  decided_by?: string;
  /**
   * when, Unix ms
   */
  decided_at?: number | null;
  /**
   * how it is drawn: rows or columns, with their marks
   */
  view?: {
    [k: string]: unknown;
  };
}
/**
 * What came of an apply, as the tables say.
 */
export interface ProposalReport {
  applied: number;
  failed: number;
  /**
   * applied operations by action
   */
  counts?: {
    [k: string]: number;
  };
  table_id?: string | null;
  /**
   * of the table, after the apply
   */
  version?: number | null;
  /**
   * the first 20
   */
  refused?: Verdict[];
}
/**
 * Why an operation was refused. `index`: its number; -1: the proposal as a whole.
 */
export interface Verdict {
  index: number;
  code: string;
  field?: string | null;
  reason?: string;
}
/**
 * The answer of `POST /v1/plans/check`: what a check says of a plan. Nothing of it has run.
 */
export interface PlanReport {
  /**
   * it would run; a direct response is valid
   */
  valid: boolean;
  /**
   * `invalid`: it cannot be read
   */
  kind: "direct_response" | "tool_calls" | "invalid";
  errors?: PlanError[];
  /**
   * errors that are not listed: at most 100 are
   */
  errors_left_out?: number;
  warnings?: PlanWarning[];
  /**
   * the same for people: a line for each error and warning, with what to do
   */
  lines?: string[];
  /**
   * arguments of each call with the values of its templates; null for a call that lacks one. Null as a whole without outputs, and for a plan that is not valid
   */
  resolved?:
    | ({
        [k: string]: unknown;
      } | null)[]
    | null;
}
/**
 * One error of a plan.
 */
export interface PlanError {
  /**
   * number of the call, from 0; null: the plan as a whole
   */
  tool_index: number | null;
  /**
   * dotted path in the arguments, with `[i]` for items of lists
   */
  argument?: string;
  template?: string;
  error:
    | FieldNotFound
    | TypeMismatch
    | IndexOutOfBounds
    | ForwardReference
    | NoOutputSchema
    | UnknownTool
    | InvalidArgument
    | OverLimit
    | PlainError;
}
/**
 * The output schema of the tool declares no such field.
 */
export interface FieldNotFound {
  type: "field_not_found";
  /**
   * of the call that the template refers to
   */
  tool_name: string;
  /**
   * the same name
   */
  tool: string;
  /**
   * dotted path, up to and including the missing segment
   */
  field: string;
  /**
   * the names at that level, as declared
   */
  available_fields: string[];
}
/**
 * The field has a type that the argument does not take.
 */
export interface TypeMismatch {
  type: "type_mismatch";
  /**
   * of the call that the template refers to
   */
  tool_name: string;
  /**
   * dotted path
   */
  field: string;
  source_types: string[];
  target_types: string[];
}
/**
 * The plan has no call of this number.
 */
export interface IndexOutOfBounds {
  type: "index_out_of_bounds";
  referenced_index: number;
  /**
   * null: no call comes before this one
   */
  max_valid_index: number | null;
}
/**
 * The call that the template refers to comes later.
 */
export interface ForwardReference {
  type: "forward_reference";
  referenced_index: number;
}
/**
 * The tool declares no output schema, so nothing may refer to its result.
 */
export interface NoOutputSchema {
  type: "no_output_schema";
  tool_name: string;
}
/**
 * The run has no tool of this name.
 */
export interface UnknownTool {
  type: "unknown_tool";
  tool_name: string;
  available_tools: string[];
}
/**
 * A literal argument does not fit the tool's input schema, or one that it requires is missing.
 */
export interface InvalidArgument {
  type: "invalid_argument";
  reason: string;
}
/**
 * The plan is larger than a limit allows, or its check would take too much work.
 */
export interface OverLimit {
  type: "too_many_calls" | "arguments_too_large" | "too_deep" | "schema_too_complex";
  limit: number;
  /**
   * null: it was not counted further
   */
  found?: number | null;
}
/**
 * An error that its type says in full.
 */
export interface PlainError {
  type:
    | "invalid_template_syntax"
    | "self_reference"
    | "unparseable"
    | "unknown_type"
    | "content_missing"
    | "calls_missing"
    | "empty_plan"
    | "tool_name_missing"
    | "arguments_not_object";
}
/**
 * What may be a mistake and does not keep a plan from running.
 */
export interface PlanWarning {
  tool_index: number;
  argument: string;
  warning: "nullable_source" | "embedded_template_not_resolved";
}
/**
 * A request to a model as a planner renders it now. Images are references, as they are in the log.
 */
export interface Prompt {
  model: string;
  /**
   * in the shape of a chat completion
   */
  messages: {
    [k: string]: unknown;
  }[];
  /**
   * functions that the model may call
   */
  tools?:
    | {
        [k: string]: unknown;
      }[]
    | null;
  tool_choice?: string | null;
  response_format?: {
    [k: string]: unknown;
  } | null;
  reasoning_effort?: string | null;
  /**
   * estimated
   */
  tokens: number;
  /**
   * version of this planner
   */
  rendered_by: string;
  /**
   * version of the planner that asked the model; empty: it did not say
   */
  asked_by: string;
}
/**
 * The body of `POST /v1/runs/{run_id}/resume`: a decision about a pause.
 */
export interface ResumeInput {
  pause_id: string;
  /**
   * the pause's token: what was seen by the person who decides
   */
  token: string;
  decision: "approve" | "reject" | "edit" | "answer";
  /**
   * of `edit`: the arguments of the call, whole
   */
  args?: {
    [k: string]: unknown;
  } | null;
  /**
   * of `answer`: valid by the pause's `input_schema`
   */
  input?: {
    [k: string]: unknown;
  };
  /**
   * of `answer`
   *
   * @maxItems 64
   */
  images?: ImageInput[];
  /**
   * images that the model is no longer shown
   *
   * @maxItems 64
   */
  images_remove?: string[];
  /**
   * the model receives it
   */
  note?: string;
}
/**
 * The response to `POST /v1/runs`: the run is stored and will end.
 */
export interface RunAccepted {
  run_id: string;
  /**
   * a later request with it continues the conversation
   */
  session_id: string;
  status?: "queued" | "running" | "done" | "error" | "cancelled";
  url: string;
  events_url: string;
  /**
   * a POST there gives an address of the events that needs no key
   */
  ticket_url: string;
}
/**
 * The run waits for its turn in its session. `request` is without `tool_context`, which is stored elsewhere.
 */
export interface Queued {
  type: "queued";
  request: RunRequested;
  has_tool_context?: boolean;
  /**
   * Unix ms: the run ends with `queue_timeout` if it has not begun by then
   */
  queue_until: number;
}
/**
 * A request for a run: gateway to planner, once per run.
 */
export interface RunRequested {
  v?: 1;
  run_id: string;
  tenant: string;
  /**
   * Unix time in ms
   */
  requested_at: number;
  trace_id: string;
  /**
   * the caller's id of the request; null: the run's id
   */
  request_id?: string | null;
  query: string;
  images?: ImageRef[];
  vision?: ("strict" | "lenient") | null;
  agent?: string;
  strategy?: string | null;
  model?: string | null;
  reasoning_effort?: ("low" | "medium" | "high" | "auto") | null;
  session_id?: string | null;
  on_busy?: "queue" | "steer" | "reject" | "cancel";
  on_paused?: "queue" | "steer" | "reject" | "cancel";
  queue_timeout_s?: number;
  messages?: ConversationMessage[];
  /**
   * fields of Memory that the caller set
   */
  memory?: {
    [k: string]: unknown;
  };
  cause?: "user" | "summary" | "task" | "job" | "report" | "call";
  /**
   * of a task: the run that spawned it
   */
  parent?: string | null;
  /**
   * 0: no task; 1: a task of such a run; 2: a task of a task
   */
  depth?: number;
  /**
   * reports in a row that led to this run
   */
  hops?: number;
  /**
   * of a job, or with the cause `call`: its one call
   */
  job?: JobRequested | null;
  /**
   * the schedule or webhook that started the run
   */
  schedule_id?: string | null;
  /**
   * what all runs of the API key may spend in a day
   */
  key_budget?: KeyBudget | null;
  /**
   * of a summary: the run of the last turn that it covers
   */
  through?: string | null;
  /**
   * of the API key; empty: a keyless caller
   */
  key_id?: string;
  /**
   * the key may use sessions of `user_id` only
   */
  is_user_pinned?: boolean;
  user_id?: string | null;
  llm_context?: {
    [k: string]: unknown;
  };
  /**
   * left out of `run_started`, which listeners get
   */
  tool_context?: {
    [k: string]: unknown;
  };
  tools?: string[] | null;
  /**
   * tools that the API key allows; of these the run may use what is there; null: all
   */
  key_tools?: string[] | null;
  /**
   * the only run that `on_busy` and `on_paused` may steer or cancel, or its own id: none; null: any
   */
  may_change?: string | null;
  /**
   * of a report
   */
  of_tasks?: TaskFindings | null;
  /**
   * fields of RunLimits that the caller set
   */
  limits?: {
    [k: string]: unknown;
  };
  page?: Page | null;
  /**
   * of the user, by the API key
   */
  role?: string;
  keep_proposal?: boolean;
  /**
   * of the request body, to detect a reused idempotency key
   */
  body_sha256?: string;
}
/**
 * An image in a run. Its bytes are read from the artifact store on behalf of the run's tenant.
 */
export interface ImageRef {
  /**
   * UUIDv7, 32 lower-case hexadecimal digits
   */
  artifact_id: string;
  mime_type: "image/png" | "image/jpeg" | "image/webp" | "image/gif";
  filename?: string | null;
  detail?: ("low" | "high" | "auto") | null;
}
/**
 * One message of a conversation that the caller keeps itself.
 */
export interface ConversationMessage {
  role: "user" | "assistant";
  content: string;
}
/**
 * The one call that a run without a model makes.
 */
export interface JobRequested {
  tool: string;
  args?: {
    [k: string]: unknown;
  };
}
/**
 * What all runs that an API key started on one day, by UTC, may spend together. Null: no limit.
 */
export interface KeyBudget {
  max_tokens?: number | null;
  max_cost_usd?: number | null;
}
/**
 * What tasks have made, for the payload of the run that waited for them, or that reports on them.
 */
export interface TaskFindings {
  /**
   * `<tool>#<task id>` -> dotted path -> JSON value or ArtifactRef
   */
  artifacts?: {
    [k: string]: {
      [k: string]: unknown;
    };
  };
  /**
   * in the same places, where one is known
   */
  artifact_types?: {
    [k: string]: {
      [k: string]: string;
    };
  };
  sources?: Source[];
  /**
   * the artifact with all results, where they were cut
   */
  whole?: string | null;
}
/**
 * Where the user stands. The registry of pages says which pages and tabs there are.
 */
export interface Page {
  name: string;
  tab?: string | null;
  subtab?: string | null;
  /**
   * the table that is shown
   */
  table_id?: string | null;
  filters?: {
    [k: string]: unknown;
  };
  sort?: unknown[];
  /**
   * numbers of the selected rows
   *
   * @maxItems 1000
   */
  selection?: number[];
}
/**
 * A planner opened the run. This is the first fact, unless a cancel arrived before the request.
 */
export interface RunStarted {
  type: "run_started";
  run_id: string;
  tenant: string;
  request: RunRequested;
  limits: RunLimits;
  /**
   * how it plans, until its end; absent: react
   */
  strategy?: string;
  /**
   * tool name -> digest of the specification, which the run uses until its end
   */
  tools?: {
    [k: string]: string;
  };
  /**
   * the request's `tool_context` is stored apart from the log, for tools only
   */
  has_tool_context?: boolean;
  /**
   * tools that require approval, by their own specification
   */
  approvals?: string[];
  /**
   * of the agent: which calls need approval beside those of `approvals`
   */
  approval_rules?: ApprovalRule[];
  /**
   * sequence of the session's record up to which the run knows the conversation; null: no session
   */
  conversation_seq?: number | null;
  /**
   * how much of that conversation the model is shown; null: the run has none
   */
  memory?: Memory | null;
  /**
   * what an answer with `requires_followup` does
   */
  followup?: "end" | "pause";
  /**
   * null: the run may not spawn background tasks
   */
  tasks?: TaskPolicy | null;
  /**
   * as configured or requested; a fallback model is named by `model_failed`
   */
  model?: string;
  /**
   * models among which a triage may choose
   */
  models?: string[];
  /**
   * models that are called, in this order, when the model fails
   */
  fallbacks?: string[];
  /**
   * reasoning effort; `auto`: a triage chooses it
   */
  effort?: ("low" | "medium" | "high" | "auto") | null;
  triage_model?: string | null;
  reflection?: Reflection | null;
  /**
   * the form of decisions that the prompt asks for, and the forms that are accepted
   */
  action_format?: "auto" | "unified" | "legacy";
  /**
   * decisions as JSON in the reply, or as native tool calls
   */
  action_transport?: "json" | "tools";
  /**
   * images of the request that the model is shown
   */
  images?: ImageRef[];
  /**
   * which images of tools the model is shown; null: none
   */
  vision_context?: VisionContextPolicy | null;
  warnings?: string[];
  /**
   * of a chat turn with a page: all that its prompt needs of it
   */
  page_view?: PageView | null;
  /**
   * Unix ms
   */
  deadline_at?: number | null;
}
/**
 * What a run may spend. A budget is checked before spending and may be exceeded by at most one call.
 */
export interface RunLimits {
  /**
   * decisions of the model, the answer included
   */
  max_steps?: number;
  /**
   * seconds from the request to the end; null: none
   */
  deadline_s?: number | null;
  /**
   * calls of tools, joins included
   */
  max_tool_calls?: number | null;
  /**
   * prompt and completion tokens of all model calls
   */
  max_tokens?: number | null;
  /**
   * of models whose price is known
   */
  max_cost_usd?: number | null;
  /**
   * tool calls of one plan at once
   */
  max_parallel?: number;
  /**
   * how long a run that has spent a budget waits for a top-up before it ends; 0: it does not wait
   */
  grace_s?: number;
}
/**
 * Which calls need a person's approval. Of several rules that match a call, the first one counts.
 *
 * A tool that requires approval (`ToolSpec.requires_approval`) needs one even if no rule matches.
 */
export interface ApprovalRule {
  name: string;
  /**
   * names of tools; `*` alone: every tool
   *
   * @minItems 1
   */
  tools: [string, ...string[]];
  /**
   * JSON Schema: the rule matches calls whose arguments are valid; null: all calls
   */
  arguments?: {
    [k: string]: unknown;
  } | null;
  /**
   * `never`, unless the tool requires it; `once_per_session`: one covers later calls of the user
   */
  ask?: "never" | "always" | "once_per_session";
  /**
   * then the call is rejected
   */
  expires_in_s?: number;
  /**
   * edited arguments wait for a further approval
   */
  reapprove_edits?: boolean;
  /**
   * shown to the person who decides
   */
  title?: string;
}
/**
 * How much of the session's conversation the model of a run is shown.
 */
export interface Memory {
  /**
   * the newest turns, which are shown whole
   */
  recent_turns?: number;
  /**
   * estimated, of turns and summary together
   */
  max_tokens?: number;
  /**
   * summarises older turns after an answer
   */
  summary_model?: string | null;
}
/**
 * What runs of an agent may do in the background, and the settings of tasks that name none.
 */
export interface TaskPolicy {
  /**
   * whether a person is asked before a task is spawned; null: yes
   */
  spawn_requires_confirmation?: boolean | null;
  /**
   * tasks of a session that may go on at once
   */
  max_open?: number;
  /**
   * tasks that one run may spawn in all
   */
  max_per_run?: number;
  /**
   * 1: tasks may not spawn tasks; 2: theirs may not
   */
  max_depth?: number;
  /**
   * reports in a row: a run that reports on tasks of a report, and so on
   */
  max_hops?: number;
  /**
   * part of what is left of a run's tokens, money and calls, for each task
   */
  budget_share?: number;
  /**
   * the deadline of a task's run
   */
  task_timeout_s?: number;
  /**
   * then a group's open tasks are cancelled
   */
  group_timeout_s?: number;
  /**
   * how long a run waits for tasks with `retain_turn`
   */
  retain_timeout_s?: number;
  /**
   * of tasks that name none; `HUMAN_GATED`: of all tasks
   */
  merge_strategy?: "APPEND" | "REPLACE" | "HUMAN_GATED";
  /**
   * of tasks that name none
   */
  group_report?: "all" | "any" | "none";
  /**
   * other agents that its runs may ask (`run_agent`), each with its description
   */
  agents?: {
    [k: string]: string;
  };
}
/**
 * A critique of the answer before the run ends. Below `threshold` it is revised, at most `max_revisions` times.
 */
export interface Reflection {
  threshold?: number;
  max_revisions?: number;
  /**
   * of the critique; null: the model of the run
   */
  model?: string | null;
}
/**
 * Whether images in results of tools are shown to the model in later calls.
 *
 * Off unless the agent's entry enables it.
 */
export interface VisionContextPolicy {
  enabled?: boolean;
  /**
   * of all tools of a run together
   */
  max_images?: number;
  /**
   * of all of them
   */
  max_total_bytes?: number;
  /**
   * names and tags of the tools whose images may be shown; `*`: all
   */
  allowed_sources?: string[];
  allow_mime_types?: ("image/png" | "image/jpeg" | "image/webp" | "image/gif")[];
}
/**
 * All that a chat turn needs to know of its page. It is resolved once, when the run opens.
 */
export interface PageView {
  page: Page;
  /**
   * of the user, by the API key
   */
  role?: string;
  persona?: string;
  /**
   * what the page shows, as text for the model
   */
  context?: string;
  /**
   * types that count here, in the order of the page
   */
  payloads?: string[];
  client_actions?: ClientAction[];
  /**
   * null: all tools of the agent
   */
  tools?: string[] | null;
  help?: string;
  /**
   * payloads so far, the oldest first
   */
  manifest?: ManifestEntry[];
  /**
   * what happened to proposals since the last turn, with real counts
   */
  notes?: string[];
  /**
   * id of the proposal that waits for a decision
   */
  pending_proposal?: string | null;
  /**
   * of the table, when this was read
   */
  base_version?: number | null;
  /**
   * of the table: id, name, type and more
   */
  columns?:
    | {
        [k: string]: unknown;
      }[]
    | null;
}
/**
 * What a user interface can do when the model suggests it.
 */
export interface ClientAction {
  name: string;
  description: string;
}
/**
 * One payload of the conversation so far.
 */
export interface ManifestEntry {
  payload_id: string;
  summary: string;
}
/**
 * A session continues from this run, which had none: the run tells it how it ends.
 */
export interface Attached {
  type: "attached";
  session_id: string;
}
/**
 * A triage, one cheap model call per run, chose the reasoning effort, and the model if several are named.
 */
export interface Triaged {
  type: "triaged";
  effort: "low" | "medium" | "high";
  model?: string | null;
  usage?: Usage | null;
}
/**
 * What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`).
 */
export interface Usage {
  model_calls?: number;
  tool_calls?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
  /**
   * null: at least one model has no known price
   */
  cost_usd?: number | null;
  repairs?: number;
  estimated?: boolean;
}
/**
 * A request to the model is about to be sent.
 *
 * `by` is the message that owns the model call, as `<stream>:<sequence>`; `holder` is the attempt token, the id of the
 * handling that streams the reply. Another handling of the same message may call the model again; a handling of any
 * other message must not.
 */
export interface Asked {
  type: "asked";
  turn: number;
  attempt: number;
  by: string;
  holder: string;
  /**
   * null: the following `triaged` names the model
   */
  model?: string | null;
  cause?: "turn" | "lost" | "repair" | "provider" | "compacted" | "restated" | "resumed";
  /**
   * of a chat turn: the number of the model call
   */
  part?: number;
  /**
   * of the attempt before, which never ended: estimated
   */
  unfinished?: Usage | null;
}
/**
 * One decision of the model: `started` when it is made, another status and `latency_ms` when the step has ended.
 *
 * The first event carries the decision. With calls, the latency is measured from the decision to the last outcome;
 * without calls, from the first request to the model. `failed`: a call failed, or an answer has no text. `answer` is
 * set only if the run continues after an answer.
 */
export interface Step {
  type: "step";
  step: number;
  node: string;
  status: "started" | "succeeded" | "failed" | "skipped" | "invalid";
  latency_ms?: number | null;
  thought?: string | null;
  /**
   * native reasoning of the model, for people; no later step needs it
   */
  reasoning?: string | null;
  calls?: PlannedCall[];
  join?: Join | null;
  /**
   * one line for the model, such as why a join did not run
   */
  note?: string | null;
  answer?: string | null;
  by?: string | null;
  attempt?: number | null;
  /**
   * of this decision's model calls
   */
  usage?: Usage | null;
  warnings?: string[];
  /**
   * how the model wrote the decision
   */
  form?: ReplyForm | null;
  /**
   * for the model that sent it; no listener gets it
   */
  opaque?: Opaque | null;
  /**
   * of a chat turn: the model call that decided this
   */
  part?: number;
  /**
   * of a part: the raw text of the model, above 32 KiB a reference. No listener gets it: text to show is in `chunk` and `done`
   */
  said?: string | ArtifactRef;
  /**
   * of a part: the length of the message up to its end
   */
  shown_to?: number;
  /**
   * of a step `plan` of the strategy `planned`
   */
  plan?: Plan | null;
  /**
   * of such a step that is invalid
   */
  errors?: PlanError[];
  /**
   * how many more errors there are
   */
  errors_left_out?: number;
  /**
   * of a step `execute` that has ended: of each call of the plan
   */
  statuses?: ("success" | "failed" | "not_executed")[];
  /**
   * of such a step: why later calls were not executed
   */
  halt_reason?: string | null;
  /**
   * of a step `execute` that the deadline halted: until when the answer may take, Unix ms
   */
  deadline_at?: number | null;
}
/**
 * One tool call of a step. `call_id` is unique in its run.
 */
export interface PlannedCall {
  call_id: string;
  tool: string;
  args?: {
    [k: string]: unknown;
  };
  /**
   * the instance of tool_runner that is called directly; this record is then the call's intent
   */
  direct?: string | null;
  /**
   * how many pauses of the tool the call has had; each begins a new round
   */
  round?: number;
  /**
   * of a spawned task: its part of the run's limits
   */
  set_aside?: Reservation | null;
  /**
   * arguments hold values of earlier results, which the model may not be shown
   */
  resolved?: boolean;
}
/**
 * What a run sets aside of its own limits for a task. Null: the run has no such limit.
 */
export interface Reservation {
  max_tokens?: number | null;
  max_cost_usd?: number | null;
  max_tool_calls?: number | null;
}
/**
 * The tool that receives the results of a plan's branches.
 *
 * `inject` maps argument names to sources (`$results`, `$all`, `$branches`, `$failures`, `$success_count`,
 * `$failure_count`, `$expect`); None fills the arguments of those names, an empty mapping fills
 * nothing.
 */
export interface Join {
  node: string;
  args?: {
    [k: string]: unknown;
  };
  inject?: {
    [k: string]: string;
  } | null;
}
/**
 * How a model wrote its decision, by which models can be judged.
 *
 * `unified`, `legacy`: a JSON action of two or five fields. `foreign`: a JSON call in the form of another framework.
 * `native`: native calls. `notation`: calls in a text. `plan`: the JSON of a plan. `text`: a plain answer.
 */
export interface ReplyForm {
  form: "unified" | "legacy" | "native" | "foreign" | "notation" | "plan" | "text";
  /**
   * what was needed to read it, such as `salvaged`
   */
  rules?: string[];
}
/**
 * What a provider wants to see again of a reply: fields of its message, and of each of its calls, as they came.
 *
 * It is sent back to the same model only, and never shown: the gateway leaves it out.
 */
export interface Opaque {
  model: string;
  message?: {
    [k: string]: unknown;
  };
  calls?: {
    [k: string]: unknown;
  }[];
}
/**
 * Calls that run one after another, as the model planned them.
 */
export interface Plan {
  reasoning?: string;
  calls: PlanCall[];
}
/**
 * One call of a plan.
 */
export interface PlanCall {
  tool_name: string;
  /**
   * values; a string may be a template
   */
  arguments?: {
    [k: string]: unknown;
  };
}
/**
 * Calls that start later than their step: those beyond `max_parallel`, and the join of a plan.
 *
 * A call may be announced again: its next round, or without `direct` when another handling has taken it over.
 */
export interface Called {
  type: "called";
  step: number;
  by: string;
  calls: PlannedCall[];
  join?: boolean;
}
/**
 * A message was delivered again, and this handling has it now. Earlier ones of it write nothing more.
 */
export interface Redelivered {
  type: "redelivered";
  /**
   * the message
   */
  by: string;
  /**
   * the attempt token of the handling
   */
  holder: string;
}
/**
 * The outcome of a call. There is one per call. `observation` is the part of the result that the model sees.
 */
export interface Observed {
  type: "observed";
  call_id: string;
  tool: string;
  status: "succeeded" | "failed";
  observation?: {
    [k: string]: unknown;
  };
  failure?: Fault | null;
  artifacts?: {
    [k: string]: unknown;
  };
  /**
   * dotted path -> type, where one is known
   */
  artifact_types?: {
    [k: string]: string;
  };
  sources?: Source[];
  /**
   * parts of the result that were left out
   */
  warnings?: string[];
  latency_ms?: number;
  /**
   * the tool's text for the model, beside its result
   */
  content?: string | null;
  /**
   * of a result in the standard form (`tool_responses`): its artifact
   */
  responded?: RespondedArtifact | null;
  /**
   * of tasks waited for
   */
  of_tasks?: TaskFindings | null;
}
/**
 * A failure. `retryable`: the same request may succeed later.
 */
export interface Fault {
  code:
    | "bad_request"
    | "invalid_args"
    | "missing_output_field"
    | "invalid_result"
    | "result_too_large"
    | "tool_error"
    | "tool_refused"
    | "tool_timed_out"
    | "tool_unavailable"
    | "outcome_unknown"
    | "unknown_tool"
    | "approval_missing"
    | "approval_expired"
    | "rejected"
    | "input_refused"
    | "invalid_pause"
    | "deadline_passed"
    | "model_failed"
    | "model_refused"
    | "model_rate_limited"
    | "response_format_refused"
    | "field_refused"
    | "context_too_long"
    | "vision_unsupported"
    | "artifact_not_found"
    | "artifact_too_large"
    | "artifact_invalid"
    | "storage_unavailable"
    | "unparseable_reply"
    | "too_many_attempts"
    | "session_busy"
    | "session_deleting"
    | "queue_timeout"
    | "not_found"
    | "task_not_found"
    | "group_not_found"
    | "group_not_joinable"
    | "group_not_complete"
    | "task_in_group"
    | "already_decided"
    | "already_ended"
    | "nothing_held"
    | "too_many_tasks"
    | "too_deep"
    | "too_many_hops"
    | "budget_exhausted"
    | "poisoned"
    | "internal";
  reason: string;
  retryable?: boolean;
  /**
   * the tool's own code, where it is none of these
   */
  tool_code?: string | null;
}
/**
 * The artifact of a result in the standard form.
 */
export interface RespondedArtifact {
  /**
   * the id that the tool gave it, any text
   */
  artifact_id: string;
  /**
   * where it is stored; null: in `artifacts` of the outcome
   */
  ref?: ArtifactRef | null;
  /**
   * tool name and digest of the arguments of its call
   */
  fingerprint: string;
  artifact_type?: string | null;
  skill_id?: string | null;
  skill_name?: string | null;
  /**
   * null: the tool's schema hides all of it
   */
  preview?: ArtifactPreview | null;
}
/**
 * A bounded view of an artifact for the model, without what the tool's schema hides from it.
 */
export interface ArtifactPreview {
  json_type: "dict" | "list" | "str" | "int" | "float" | "bool" | "bytes";
  /**
   * bytes, as it is stored
   */
  size: number;
  /**
   * dotted path -> number of items of a list, or of members of the object itself
   */
  counts?: {
    [k: string]: number;
  };
  /**
   * the beginning of its JSON, or of its text
   */
  head: string;
}
/**
 * A reply of the model could not be used. The model gets the reason and is called again.
 *
 * `kind` repair: the reply was not a valid action. `answer`: a final response without its text, which alone is
 * requested; `args` holds its other fields. `revision`: the critique rated the answer too low.
 */
export interface Repaired {
  type: "repaired";
  turn: number;
  attempt: number;
  reason: string;
  kind?: "repair" | "answer" | "revision";
  args?: {
    [k: string]: unknown;
  } | null;
  /**
   * the model's reply, shortened
   */
  reply?: string;
  usage?: Usage | null;
}
/**
 * A request to a model failed.
 *
 * `then` says what follows at `retry_at`: another request to the same model, or one to the next model. An `asked`
 * with the cause `provider` begins it.
 */
export interface ModelFailed {
  type: "model_failed";
  turn: number;
  attempt: number;
  model: string;
  fault: Fault;
  then: "retry" | "fallback";
  next_model: string;
  wait_s?: number;
  /**
   * Unix ms: the end of the wait
   */
  retry_at: number;
  /**
   * of the failed request
   */
  usage?: Usage | null;
}
/**
 * The conversation was too long for the model. From now on lines of older messages are cut to `line_characters`.
 */
export interface Compacted {
  type: "compacted";
  turn: number;
  cause: "overflow" | "threshold";
  line_characters: number;
}
/**
 * A payload of the turn counts: a proposal that a person may apply. Names of columns are already their ids.
 */
export interface PayloadProposed {
  type: "payload";
  payload_id: string;
  /**
   * the type of the payload, such as `data_proposal`
   */
  kind: string;
  source?: "llm" | "tool";
  summary: string;
  /**
   * as the model or a tool gave it, whatever it looks like
   */
  data: {
    [k: string]: unknown;
  };
  /**
   * above 32 KiB: the data is in this artifact, in a list of one
   */
  stored?: ArtifactRef | null;
  table_id?: string | null;
  /**
   * of the table, when the turn's prompt was built
   */
  base_version?: number | null;
}
/**
 * The run, or one of its calls, waits for a person or program until `until`.
 *
 * `reason` budget: the run waits for a top-up of the named budget, and ends at `until` if nobody acts. All others have
 * a `pause_id`; there may be several, each for itself. A record with the same `pause_id` and a higher `revision`
 * replaces the pause, as after an edit that must be approved again. At `until` the `default` takes effect.
 */
export interface Paused {
  type: "paused";
  reason?: "approval" | "input" | "confirmation" | "budget";
  /**
   * the budget that is spent, with its limit
   */
  budget?: string;
  /**
   * Unix ms
   */
  until: number;
  pause_id?: string | null;
  source?: "tool" | "policy" | "planner" | "mcp" | "task";
  revision?: number;
  /**
   * for the person who decides; above 32 KiB an ArtifactRef
   */
  payload?: {
    [k: string]: unknown;
  };
  /**
   * JSON Schema of the expected input
   */
  input_schema?: {
    [k: string]: unknown;
  } | null;
  default?: "reject" | "answer";
  default_answer?: {
    [k: string]: unknown;
  };
  /**
   * the call that waits
   */
  call_id?: string | null;
  tool?: string | null;
  /**
   * of an approval: digest of the specification of its tool
   */
  spec?: string | null;
  /**
   * of the call, artifacts as references
   */
  arguments?: {
    [k: string]: unknown;
  } | null;
  step?: number | null;
  /**
   * the approval rule that asks
   */
  rule?: string | null;
  /**
   * counts the pauses of the call from 0
   */
  number?: number;
  /**
   * the round of the call that the tool's pause has ended
   */
  round?: number;
  /**
   * `ctx.state` of the tool, for the next round
   */
  state?: {
    [k: string]: unknown;
  };
  digest?: string;
  /**
   * names pause, revision and digest; a decision repeats it
   */
  token?: string;
  /**
   * of the request whose edit waits for this further approval
   */
  id?: string | null;
  /**
   * of that request
   */
  request_sha256?: string;
  /**
   * of that request: the id of the API key
   */
  by?: string;
  title?: string;
}
/**
 * The run may spend more. `limits` are its total limits from now on; `by` is the id of the request.
 */
export interface ToppedUp {
  type: "topped_up";
  limits: RunLimits;
  /**
   * Unix ms
   */
  deadline_at?: number | null;
  by: string;
}
/**
 * A pause is over, or, without a `pause_id`, the run's wait for a budget or for its turn (`by`: `session`).
 */
export interface Resumed {
  type: "resumed";
  pause_id?: string | null;
  decision?: ("approve" | "reject" | "edit" | "answer") | null;
  /**
   * of the request that decided; null: it was not a request
   */
  id?: string | null;
  /**
   * of that request, to detect a reused idempotency key
   */
  request_sha256?: string;
  /**
   * `timer`, `session`, or the id of the API key; empty: a keyless caller
   */
  by?: string;
  user_id?: string | null;
  /**
   * of a pause, Unix ms
   */
  decided_at?: number | null;
  note?: string;
  /**
   * of an edit: the arguments from now on
   */
  arguments?: {
    [k: string]: unknown;
  } | null;
  /**
   * of an answer
   */
  input?: {
    [k: string]: unknown;
  };
  /**
   * of an answer: shown to the model from now on
   */
  images?: ImageRef[];
  /**
   * images that the model is no longer shown
   */
  images_remove?: string[];
  /**
   * of an approval: of the call that was approved
   */
  digest?: string;
  /**
   * Unix ms; the run's deadline from now on
   */
  deadline_at?: number | null;
  /**
   * by `session`: of its record that gave the turn again
   */
  session_seq?: number | null;
}
/**
 * A person adds to a run. The model receives it with its next decision.
 */
export interface InputAdded {
  type: "input_added";
  id: string;
  text?: string;
  images?: ImageRef[];
  /**
   * it replaces the question, and ends the model call in flight
   */
  redirect?: boolean;
  /**
   * the run whose request brought it (`on_busy: steer`)
   */
  run?: string | null;
  /**
   * the id of the API key; empty: a keyless caller
   */
  by?: string;
}
/**
 * A task that the run spawned has ended. What was set aside for it and not spent is the run's again.
 */
export interface TaskSettled {
  type: "task_settled";
  call_id: string;
  task_id: string;
  spent: Usage;
}
/**
 * What tasks that a call waits for need of people, in the place of what an earlier event said. No pauses: nothing.
 *
 * Their runs hold the rest of each pause. Of one whose `run_id` is this run, held results wait for a decision.
 */
export interface TasksPaused {
  type: "tasks_paused";
  call_id: string;
  /**
   * sequence of the session's record; an older message changes nothing
   */
  seq: number;
  /**
   * without payload, schema and arguments
   */
  pauses: OpenPause[];
}
/**
 * A report gives its turn to a user's run, and asks no model until its own turn comes again (`resumed`).
 */
export interface Yielded {
  type: "yielded";
  /**
   * sequence of the session's record that gave the turn away
   */
  seq: number;
}
/**
 * The run is being cancelled during a model call. No more of the reply is stored.
 *
 * `cancelled` follows, with the text that was shown.
 */
export interface Stopping {
  type: "stopping";
  reason?: string;
}
/**
 * The run ended with an answer, or with the results so far when a budget was spent.
 *
 * Its record may begin with the last `thinking` and `chunk` events of the answer, which are then not on the stream.
 */
export interface Done {
  raw_answer: string;
  /**
   * tool -> field -> JSON value or ArtifactRef; from tools only
   */
  artifacts?: {
    [k: string]: {
      [k: string]: unknown;
    };
  };
  /**
   * tool -> field -> what the artifact is, such as `chart`, where the tool or its form tells
   */
  artifact_types?: {
    [k: string]: {
      [k: string]: string;
    };
  };
  confidence?: number | null;
  sources?: Source[];
  /**
   * `partial` if a budget stopped the run, `error` if it failed
   */
  route?: string | null;
  suggested_actions?: SuggestedAction[];
  requires_followup?: boolean;
  warnings?: string[];
  language?: string | null;
  extra?: {
    [k: string]: unknown;
  };
  type: "done";
  reason: "answer_complete" | "budget_exhausted" | "no_path" | "cancelled" | "error";
  usage?: Usage1;
  /**
   * sequence of the newest record on the run's stream: a listener that has followed the stream up to it has all of it; 0: there is none; null: not known, so read the stream's end
   */
  last_stream_seq?: number | null;
}
/**
 * What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`).
 */
export interface Usage1 {
  model_calls?: number;
  tool_calls?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
  /**
   * null: at least one model has no known price
   */
  cost_usd?: number | null;
  repairs?: number;
  estimated?: boolean;
}
/**
 * The run ended because of a failure.
 */
export interface Error {
  type: "error";
  error: string;
  code: string;
  trace_id: string;
  payload: FinalPayload;
  usage?: Usage2;
  /**
   * sequence of the newest record on the run's stream: a listener that has followed the stream up to it has all of it; 0: there is none; null: not known, so read the stream's end
   */
  last_stream_seq?: number | null;
}
/**
 * What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`).
 */
export interface Usage2 {
  model_calls?: number;
  tool_calls?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
  /**
   * null: at least one model has no known price
   */
  cost_usd?: number | null;
  repairs?: number;
  estimated?: boolean;
}
/**
 * The run was stopped by a person or program.
 */
export interface Cancelled {
  type: "cancelled";
  reason?: string;
  payload: FinalPayload;
  usage?: Usage3;
  /**
   * sequence of the newest record on the run's stream: a listener that has followed the stream up to it has all of it; 0: there is none; null: not known, so read the stream's end
   */
  last_stream_seq?: number | null;
}
/**
 * What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`).
 */
export interface Usage3 {
  model_calls?: number;
  tool_calls?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
  /**
   * null: at least one model has no known price
   */
  cost_usd?: number | null;
  repairs?: number;
  estimated?: boolean;
}
/**
 * The run was deleted after it had ended. Nothing else is left on its log; listeners should delete their copy.
 */
export interface Deleted {
  type: "deleted";
}
/**
 * Characters of the answer, in reading order.
 *
 * A listener drops of what it has the text from `offset` on, then appends `text`. `seq` counts from 0 in each attempt.
 */
export interface Chunk {
  type: "chunk";
  stream_id?: string;
  seq: number;
  /**
   * place of the first character in the answer, in Unicode code points
   */
  offset?: number;
  text: string;
  done?: boolean;
  channel?: "answer";
  phase?: "answer";
  action_seq: number;
  /**
   * of a chat turn: the number of the model call
   */
  part?: number;
  attempt: number;
}
/**
 * Native reasoning of the model, in reading order.
 */
export interface Thinking {
  type: "thinking";
  stream_id?: string;
  seq: number;
  /**
   * place of the first character in the reasoning, in Unicode code points
   */
  offset?: number;
  text: string;
  done?: boolean;
  channel?: "thinking";
  phase?: "thinking";
  action_seq: number;
  /**
   * of a chat turn: the number of the model call
   */
  part?: number;
  attempt: number;
}
/**
 * A hint that the model began to write a hidden block, such as a proposal. It is over when the run has ended.
 */
export interface BlockStarted {
  type: "block_started";
  /**
   * the marker, such as `DATA_PROPOSAL`
   */
  name: string;
  part?: number;
}
/**
 * A tool that is not idempotent is about to be called, or a direct call may have begun and has no outcome yet.
 *
 * If the tool never replies, the outcome of the call is unknown.
 */
export interface CallStarted {
  type: "call_started";
  call_id: string;
  tool: string;
  /**
   * how many pauses of the tool the call has had
   */
  round?: number;
}
/**
 * Progress of a call: a text for people, and `fraction` from 0 to 1.
 */
export interface ToolProgress {
  type: "tool_progress";
  call_id: string;
  tool: string;
  message?: string;
  fraction?: number | null;
}
/**
 * A piece of an artifact while it grows. `seq` counts from 0 without gaps, per call and stream.
 */
export interface ArtifactChunk {
  type: "artifact_chunk";
  stream_id: string;
  seq: number;
  chunk: unknown;
  done?: boolean;
  artifact_type?: string | null;
  tool: string;
  call_id: string;
}
/**
 * A large part of a tool's result was stored as an artifact. The gateway serves it.
 *
 * `field` is its dotted path in the result.
 */
export interface ArtifactStored {
  type: "artifact_stored";
  artifact_id: string;
  mime_type: string;
  size: number;
  tool: string;
  call_id: string;
  field: string;
  artifact_type?: string | null;
}
/**
 * The answer to a person's request to a run, such as a decision about a pause. `id` is that of the request.
 */
export interface ControlAnswered {
  type: "control_answered";
  id: string;
  /**
   * why the request was refused; null: it took effect
   */
  code?: string | null;
  reason?: string;
  /**
   * an earlier request with this id took effect
   */
  is_repeated?: boolean;
}
/**
 * An event of a type that this version does not know.
 */
export interface UnknownEvent {
  type: string;
  [k: string]: unknown;
}
/**
 * The body of `POST /v1/runs`.
 */
export interface RunInput {
  /**
   * the question, as the user put it
   */
  query: string;
  /**
   * shown to the model with the question
   *
   * @maxItems 64
   */
  images?: ImageInput[];
  /**
   * for a model that takes no images: refuse the run, or run it without them; null: as the agent says
   */
  vision?: ("strict" | "lenient") | null;
  /**
   * an entry of the agents file
   */
  agent?: string;
  strategy?: ("react" | "planned" | "chat") | null;
  /**
   * one of the models that the deployment names; null: the agent's model
   */
  model?: string | null;
  reasoning_effort?: ("low" | "medium" | "high" | "auto") | null;
  /**
   * the conversation; null: the run gets one of its own
   */
  session_id?: string | null;
  /**
   * what happens while another run of the session has the turn
   */
  on_busy?: "queue" | "steer" | "reject" | "cancel";
  /**
   * the same while that run only waits for a person
   */
  on_paused?: "queue" | "steer" | "reject" | "cancel";
  /**
   * how long the run may wait for its turn
   */
  queue_timeout_s?: number;
  /**
   * the conversation so far, in place of a session
   *
   * @maxItems 200
   */
  messages?: ConversationMessage[];
  memory?: MemoryInput;
  user_id?: string | null;
  /**
   * shown to the model
   */
  llm_context?: {
    [k: string]: unknown;
  };
  /**
   * given to tools, never shown to the model or to listeners
   */
  tool_context?: {
    [k: string]: unknown;
  };
  /**
   * names of the tools that the run may use; null: all
   */
  tools?: string[] | null;
  limits?: LimitsInput;
  /**
   * where the user stands; for the strategy `chat`
   */
  page?: Page | null;
  /**
   * the session's pending proposal stays; where there is one, this turn proposes nothing
   */
  keep_proposal?: boolean;
}
/**
 * How much of the session's conversation the model is shown. What is left out comes from the agent's entry.
 */
export interface MemoryInput {
  /**
   * turns that are shown whole
   */
  recent_turns?: number | null;
  /**
   * of all of the conversation
   */
  max_tokens?: number | null;
  /**
   * summarises older turns after an answer; null: they are left out, and the model is shown how many
   */
  summary_model?: string | null;
}
/**
 * The limits that a caller sets. The others come from the agent's entry or the deployment.
 */
export interface LimitsInput {
  max_steps?: number | null;
  deadline_s?: number | null;
  max_tool_calls?: number | null;
  max_tokens?: number | null;
  max_cost_usd?: number | null;
  max_parallel?: number | null;
  grace_s?: number | null;
}
/**
 * The status of a run.
 */
export interface RunStatus {
  run_id: string;
  status: "queued" | "running" | "done" | "error" | "cancelled";
  /**
   * of a running one: for a person, for a top-up
   */
  waits?: ("waiting" | "paused") | null;
  agent?: string;
  /**
   * the first 200 characters
   */
  query?: string;
  session_id?: string | null;
  user_id?: string | null;
  cause?: "user" | "summary" | "task" | "job" | "report" | "call";
  /**
   * of a background task: the run that spawned it
   */
  parent?: string | null;
  /**
   * Unix time in ms
   */
  requested_at: number;
  started_at?: number | null;
  ended_at?: number | null;
  reason?: ("answer_complete" | "budget_exhausted" | "no_path" | "cancelled" | "error") | null;
  /**
   * fault code of a run that ended in error
   */
  code?: string | null;
  /**
   * the budget whose top-up the run waits for; absent in lists
   */
  paused?: string | null;
  /**
   * open ones that wait for a person; absent in lists
   */
  pauses?: OpenPause[];
  /**
   * once ended; absent in lists
   */
  payload?: FinalPayload | null;
  usage?: Usage | null;
}
/**
 * A schedule or webhook, as HTTP shows it. Times are RFC 3339, in the schedule's time zone.
 */
export interface ScheduleView {
  schedule_id: string;
  name?: string;
  cron?: string | null;
  at?: string | null;
  time_zone?: string | null;
  missed?: "skip" | "run_once";
  /**
   * of a webhook: where its deliveries go
   */
  webhook_url?: string | null;
  /**
   * fields of the run that were set, without `tool_context`; in lists only part of `query`
   */
  run: {
    [k: string]: unknown;
  };
  /**
   * the API key that made it; empty: a keyless caller
   */
  key_id?: string;
  user_id?: string | null;
  /**
   * Unix ms
   */
  created_at: number;
  /**
   * the next three times; in lists the next one
   */
  next?: string[];
  /**
   * the newest fire time that started a run
   */
  last?: string | null;
  /**
   * that run
   */
  last_run?: string | null;
}
/**
 * The first request of a session arrived.
 */
export interface SessionStarted {
  type: "session_started";
  session_id: string;
  /**
   * id of the API key; empty: a keyless caller
   */
  created_by?: string;
  user_id?: string | null;
}
/**
 * A run joined the session. It begins at once if nobody has the turn.
 */
export interface RunQueued {
  type: "run_queued";
  run: string;
  cause?: "user" | "summary" | "task" | "job" | "report" | "call";
  on_busy?: "queue" | "steer" | "reject" | "cancel";
  /**
   * Unix ms; of a summary 0: it is requested at the time of this record
   */
  requested_at: number;
  /**
   * it is the next one to begin (`on_busy: cancel`)
   */
  is_first?: boolean;
}
/**
 * A run has the turn, or, for a summary, began beside it.
 */
export interface RunBegun {
  type: "run_begun";
  run: string;
}
/**
 * The report that had the turn gave it to a user's run. It begins again when no user's run waits.
 */
export interface RunYielded {
  type: "run_yielded";
  run: string;
}
/**
 * The text of a queued run was sent to the run that has the turn.
 */
export interface InputForwarded {
  type: "input_forwarded";
  run: string;
  into: string;
}
/**
 * The run that has the turn took the text of a queued one.
 */
export interface RunMergedInto {
  type: "run_merged";
  run: string;
  into: string;
}
/**
 * The run that should take the text of a queued one had ended, so the queued one waits for its own turn.
 */
export interface InputMissed {
  type: "input_missed";
  run: string;
  into: string;
}
/**
 * A run may not run in this session.
 */
export interface RunRefusedBySession {
  type: "run_refused";
  run: string;
  fault: Fault;
}
/**
 * What a run waits for. It keeps the turn. `waits`: it does nothing but wait for a person.
 */
export interface RunWaits {
  type: "run_waits";
  run: string;
  /**
   * sequence of the run's record; an older message changes nothing
   */
  seq: number;
  waits: boolean;
  /**
   * without payload, schema and arguments
   */
  pauses?: OpenPause[];
}
/**
 * A run of the session ended. `question`, `answer` and all `inputs` are at most 32 KiB each.
 */
export interface RunEnded {
  type: "run_ended";
  run: string;
  outcome: "done" | "error" | "cancelled";
  code?: string | null;
  question?: string;
  /**
   * texts that were added while the run went on
   */
  inputs?: string[];
  answer?: string;
  /**
   * texts were longer; the whole ones are in the run's log
   */
  is_cut?: boolean;
  /**
   * ids of the images that came with the question
   */
  attached?: string[];
  requested_at?: number;
  usage?: Usage4;
  /**
   * of a chat turn
   */
  payloads?: PayloadKept[];
}
/**
 * What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`).
 */
export interface Usage4 {
  model_calls?: number;
  tool_calls?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
  /**
   * null: at least one model has no known price
   */
  cost_usd?: number | null;
  repairs?: number;
  estimated?: boolean;
}
/**
 * A payload of a turn: a proposal, or another thing that a page shows.
 */
export interface PayloadKept {
  payload_id: string;
  kind: string;
  summary: string;
  table_id?: string | null;
  base_version?: number | null;
}
/**
 * Values that later runs of the session are shown, as untrusted data.
 */
export interface ContextSet {
  type: "context_set";
  /**
   * a value of null removes its name
   */
  values: {
    [k: string]: unknown;
  };
  by?: string;
}
/**
 * The turns up to and with the one of run `through` are represented by `text` from now on.
 */
export interface Summarised {
  type: "summarised";
  through: string;
  /**
   * the run that made the summary
   */
  run: string;
  text: string;
  model?: string;
  usage?: Usage5;
}
/**
 * What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`).
 */
export interface Usage5 {
  model_calls?: number;
  tool_calls?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
  /**
   * null: at least one model has no known price
   */
  cost_usd?: number | null;
  repairs?: number;
  estimated?: boolean;
}
/**
 * A person approved a call under a rule that asks once per session. It counts for later runs of the same user.
 */
export interface ApprovedForSession {
  type: "approved_for_session";
  rule: string;
  tool: string;
  agent: string;
  user_id?: string | null;
  by?: string;
}
/**
 * Runs were deleted, or purged after their retention: the session keeps nothing that was said in them.
 */
export interface RunsForgotten {
  type: "runs_forgotten";
  /**
   * empty: the events before this one are gone, with those of runs forgotten then
   */
  runs: string[];
}
/**
 * The session is being deleted: its open runs are cancelled, and no run may join it until it is gone.
 */
export interface SessionDeleting {
  type: "deleting";
  by?: string;
}
/**
 * The session was deleted. A later request with its id starts a new one.
 */
export interface SessionDeleted {
  type: "deleted";
}
/**
 * The whole state after the record that contains this event, as the planner folds it.
 */
export interface Checkpoint {
  type: "checkpoint";
  state: {
    [k: string]: unknown;
  };
}
/**
 * A group was made, with the settings of the spawn that made it.
 */
export interface GroupOpened {
  type: "group_opened";
  group_id: string;
  /**
   * empty: of a task that was spawned without a group
   */
  name?: string;
  /**
   * the run that made it. Only its own further tasks join by the name
   */
  run: string;
  report?: "all" | "any" | "none";
  merge?: "APPEND" | "REPLACE" | "HUMAN_GATED";
  /**
   * Unix ms
   */
  timeout_at?: number | null;
  /**
   * fields of RunRequested of a run that reports on the group
   */
  report_as?: {
    [k: string]: unknown;
  };
}
/**
 * A task was spawned. Its run is requested next.
 */
export interface TaskSpawned {
  type: "task_spawned";
  /**
   * the id of its run
   */
  task_id: string;
  group_id: string;
  /**
   * the run that spawned it
   */
  run: string;
  /**
   * the call of that run
   */
  call_id: string;
  name?: string;
  mode: "subagent" | "job";
  /**
   * of a job
   */
  tool?: string | null;
  /**
   * of a subagent: its beginning, at most 200 bytes
   */
  query?: string;
  depth?: number;
  /**
   * kept of what was set aside for the task: the limits of the report on it
   */
  for_report?: Reservation | null;
  requested_at?: number;
}
/**
 * The run that spawned a task keeps its turn until the task's group has ended, or until `until`.
 */
export interface WaiterAdded {
  type: "waiter_added";
  group_id: string;
  run: string;
  call_id: string;
  /**
   * Unix ms
   */
  until: number;
}
/**
 * A waiting run has its answer.
 */
export interface WaiterReleased {
  type: "waiter_released";
  group_id: string;
  run: string;
  call_id: string;
  timed_out?: boolean;
  /**
   * false: the run had ended, so nobody has the results
   */
  is_answered?: boolean;
}
/**
 * A task was not spawned. `task_id`: the one that it would have.
 */
export interface SpawnRefused {
  type: "spawn_refused";
  task_id: string;
  run: string;
  fault: Fault;
}
/**
 * No task may join the group any more.
 */
export interface GroupSealed {
  type: "group_sealed";
  group_id: string;
  /**
   * `spawn`, `run` (its turn ended), `model`, `timer`, or `person`
   */
  by?: string;
}
/**
 * A task's run ended. `digest`: what it found, at most 8 KiB.
 */
export interface TaskEnded {
  type: "task_ended";
  task_id: string;
  outcome: "succeeded" | "partial" | "failed" | "cancelled";
  code?: string | null;
  digest?: string;
  spent?: Usage6;
  usage?: Usage7;
}
/**
 * What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`).
 */
export interface Usage6 {
  model_calls?: number;
  tool_calls?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
  /**
   * null: at least one model has no known price
   */
  cost_usd?: number | null;
  repairs?: number;
  estimated?: boolean;
}
/**
 * What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`).
 */
export interface Usage7 {
  model_calls?: number;
  tool_calls?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
  /**
   * null: at least one model has no known price
   */
  cost_usd?: number | null;
  repairs?: number;
  estimated?: boolean;
}
/**
 * These tasks are being cancelled.
 */
export interface TasksCancelled {
  type: "tasks_cancelled";
  tasks: string[];
  /**
   * `model`, `timer`, `run` (theirs was cancelled), or the id of the API key
   */
  by?: string;
  /**
   * false: no report on their groups follows
   */
  is_reported?: boolean;
}
/**
 * A group is sealed, and all its tasks have ended.
 */
export interface GroupEnded {
  type: "group_ended";
  group_id: string;
  status: "complete" | "failed";
  /**
   * a person applies or rejects its results (`HUMAN_GATED`)
   */
  awaits_decision?: boolean;
}
/**
 * Later runs of the session are shown the results of these tasks.
 */
export interface ResultsMerged {
  type: "results_merged";
  group_id: string;
  tasks: string[];
  /**
   * of a decision: the id of the API key; empty: no decision was needed
   */
  by?: string;
}
/**
 * A person rejected the held results of a group. No run is shown them.
 */
export interface ResultsRejected {
  type: "results_rejected";
  group_id: string;
  by?: string;
}
/**
 * A run is requested that tells the user about ended tasks.
 */
export interface Reported {
  type: "reported";
  /**
   * the id of that run
   */
  report_id: string;
  group_id: string;
  kind: "group" | "task";
  tasks: string[];
  failed?: string[];
}
/**
 * A request about a task or group was carried out, or had been before.
 */
export interface TaskControlDone {
  type: "task_control_done";
  /**
   * of SessionTaskControl; of a run's call `<run>/<call_id>`
   */
  id: string;
}
/**
 * A request about a task or group changed nothing.
 */
export interface TaskControlRefused {
  type: "task_control_refused";
  /**
   * of SessionTaskControl; of a run's call `<run>/<call_id>`
   */
  id: string;
  fault: Fault;
}
/**
 * A turn ended with a proposal.
 */
export interface ProposalPending {
  type: "proposal_pending";
  proposal_id: string;
  /**
   * the turn
   */
  run: string;
  kind: string;
  summary: string;
  /**
   * null: a new table
   */
  table_id?: string | null;
}
/**
 * A person applies a proposal, or some of its operations.
 */
export interface ProposalApplying {
  type: "proposal_applying";
  proposal_id: string;
  /**
   * numbers of the chosen operations
   */
  operations: number[];
  /**
   * how many operations the proposal has
   */
  of: number;
  /**
   * of a new table: with its sample rows
   */
  with_samples?: boolean;
  /**
   * the run that applies it
   */
  job: string;
  /**
   * id of the API key
   */
  by?: string;
}
/**
 * An apply has ended.
 */
export interface ProposalApplied {
  type: "proposal_applied";
  proposal_id: string;
  job: string;
  report: ProposalReport;
}
/**
 * An apply has failed as a whole: the proposal is pending again. What was applied of it is not applied again.
 */
export interface ProposalReleased {
  type: "proposal_released";
  proposal_id: string;
  job: string;
  /**
   * how the run of the apply ended
   */
  code: string;
}
/**
 * A person dismissed a proposal.
 */
export interface ProposalDismissed {
  type: "proposal_dismissed";
  proposal_id: string;
  /**
   * id of the API key
   */
  by?: string;
}
/**
 * A new message, or the proposal of a later turn, took the place of a proposal.
 */
export interface ProposalSuperseded {
  type: "proposal_superseded";
  proposal_id: string;
  /**
   * the run
   */
  by: string;
}
/**
 * A session: `GET /v1/sessions/{session_id}`.
 */
export interface SessionStatus {
  session_id: string;
  /**
   * the session's part of subjects on NATS: 32 hexadecimal digits
   */
  key: string;
  user_id?: string | null;
  /**
   * Unix ms
   */
  created_at: number;
  /**
   * Unix ms
   */
  updated_at: number;
  /**
   * runs so far, summaries not counted
   */
  runs?: number;
  /**
   * the run that has the turn
   */
  current_run?: string | null;
  queued_runs?: number;
  open_pauses?: number;
  /**
   * background tasks that go on
   */
  open_tasks?: number;
  /**
   * groups and tasks whose results a person applies or rejects
   */
  open_decisions?: number;
  /**
   * id of the proposal that a person applies or dismisses
   */
  pending_proposal?: string | null;
  usage?: Usage8;
  /**
   * at most 100, newest first
   */
  recent_runs?: RunStatus[];
  /**
   * runs that wait for their turn, in their order
   */
  queue?: string[];
  /**
   * represents the older turns
   */
  summary?: string;
  context?: {
    [k: string]: unknown;
  };
  /**
   * of all runs of the session
   */
  pauses?: OpenPause[];
  /**
   * background tasks without results, at most 100: those that go on, then the newest that ended
   */
  tasks?: TaskView[];
  /**
   * the newest 100, newest first
   */
  groups?: GroupView[];
  /**
   * of the newest 50 payloads, newest first
   */
  proposals?: ProposalEntry[];
}
/**
 * What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`).
 */
export interface Usage8 {
  model_calls?: number;
  tool_calls?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
  /**
   * null: at least one model has no known price
   */
  cost_usd?: number | null;
  repairs?: number;
  estimated?: boolean;
}
/**
 * A background task, as HTTP and the model's tools show it.
 */
export interface TaskView {
  /**
   * the id of its run too
   */
  task_id: string;
  session_id: string;
  status: "running" | "succeeded" | "partial" | "failed" | "cancelled";
  name?: string;
  mode: "subagent" | "job";
  tool?: string | null;
  query?: string;
  /**
   * null: it was spawned without a group
   */
  group_id?: string | null;
  /**
   * run
   */
  spawned_by: string;
  depth?: number;
  /**
   * Unix ms
   */
  requested_at: number;
  ended_at?: number | null;
  /**
   * of a failed or partial task
   */
  code?: string | null;
  /**
   * what it found; empty in lists
   */
  result?: string;
  /**
   * a person has yet to apply or reject its result
   */
  is_held?: boolean;
  /**
   * later runs of the session are shown its result
   */
  is_merged?: boolean;
}
/**
 * A group of background tasks, as HTTP and the model's tools show it.
 */
export interface GroupView {
  group_id: string;
  session_id: string;
  name: string;
  status: "open" | "sealed" | "complete" | "failed";
  report: "all" | "any" | "none";
  merge: "APPEND" | "REPLACE" | "HUMAN_GATED";
  /**
   * ids
   */
  tasks: string[];
  succeeded?: string[];
  /**
   * they ran out of their share, and have a result
   */
  partial?: string[];
  /**
   * cancelled ones included
   */
  failed?: string[];
  awaits_decision?: boolean;
  decision?: ("applied" | "rejected") | null;
  /**
   * the run that reports on the group
   */
  report_id?: string | null;
  /**
   * Unix ms
   */
  timeout_at?: number | null;
}
/**
 * A proposal, as its session lists it.
 */
export interface ProposalEntry {
  proposal_id: string;
  /**
   * the turn that proposed it
   */
  run_id: string;
  kind: string;
  summary: string;
  state: "pending" | "applying" | "applied" | "dismissed" | "superseded";
  table_id?: string | null;
}
/**
 * A request on `tool.<name>`.
 *
 * A repeated `call_key` (run and call) joins the call in flight or gets its finished result.
 */
export interface ToolCall {
  call_id: string;
  run_id: string;
  tenant?: string;
  tool: string;
  args: {
    [k: string]: unknown;
  };
  /**
   * the same for every repetition of this call; unique over all runs
   */
  idempotency_key: string;
  /**
   * Unix time in ms; the call ends then
   */
  deadline_at: number;
  /**
   * Unix time in ms; do not begin after it unless a reply was sent before: without one the caller sends the call to another instance then
   */
  start_by?: number | null;
  /**
   * Unix time in ms, by the clock of `deadline_at` and `start_by`, which may not be that of the tool
   */
  sent_at?: number | null;
  /**
   * the caller sends the call again after the reply `declined`
   */
  understands_declined?: boolean;
  /**
   * how many pauses this call has had
   */
  round?: number;
  /**
   * to the pauses so far, in their order
   */
  answers?: PauseAnswer[];
  /**
   * what the reply `pause` of the last round kept
   */
  state?: {
    [k: string]: unknown;
  };
  /**
   * the caller accepts the reply `pause`
   */
  understands_pause?: boolean;
  /**
   * the caller accepts the reply `content`
   */
  understands_content?: boolean;
  session_id?: string | null;
  /**
   * the caller's id of the request for the run, or the run's
   */
  request_id?: string | null;
  trace_id?: string | null;
  user_id?: string | null;
  /**
   * the caller's `tool_context`; never shown to the model
   */
  context?: {
    [k: string]: unknown;
  };
}
/**
 * The answer to one pause of a call.
 */
export interface PauseAnswer {
  /**
   * counts the pauses of the call from 0
   */
  number: number;
  decision: "approve" | "reject" | "edit" | "answer";
  input?: {
    [k: string]: unknown;
  };
  note?: string;
}
/**
 * The specification of a tool, as it announces it.
 */
export interface ToolSpec {
  name: string;
  description?: string;
  /**
   * JSON Schema of `args`; local references only
   */
  input_schema?: {
    [k: string]: unknown;
  };
  /**
   * JSON Schema of the result; None: anything
   */
  output_schema?: {
    [k: string]: unknown;
  } | null;
  /**
   * True: a call may be repeated under the same idempotency key
   */
  idempotent?: boolean;
  side_effects?: "none" | "read" | "write" | "external";
  /**
   * longest time without a reply, in seconds; every reply restarts it
   */
  timeout_s?: number;
  /**
   * each call sends a reply at least this often, from its start, and `.status` is answered
   */
  heartbeat_s?: number | null;
  /**
   * calls at once over all instances
   */
  concurrency?: number;
  tags?: string[];
  /**
   * no call without a person's approval
   */
  requires_approval?: boolean;
  /**
   * models and plans are not offered it; `POST /v1/tools/{name}/call` takes the right `apply`
   */
  hidden?: boolean;
}
