// Types for the type check: rows and answers of the API, and those that the modules share. No module loads this file.

export type JobState = "waiting" | "pending" | "running" | "completed" | "partial" | "failed" | "cancelled";
export type PipelineState = "running" | "completed" | "partial" | "failed" | "cancelled";
export type StepState = "pending" | "running" | "completed" | "failed" | "skipped";
export type Permission = "view" | "submit" | "operate";

/** ISO 8601, in UTC. */
type Timestamp = string;

// Rows

export interface Job {
  id: number;
  /** null: a row adopted from elsewhere, which never runs. */
  job_type: string | null;
  state: JobState;
  queue: string;
  priority: number;
  scope: string | null;
  is_current: boolean;
  tags: string[];
  parent_id: number | null;
  children: number;
  attempts: number;
  quota: number | null;
  waiting_on: number;
  locked_by: string | null;
  locked_at: Timestamp | null;
  progress: number | null;
  status_message: string | null;
  error: string | null;
  run_after: Timestamp | null;
  created_at: Timestamp;
  started_at: Timestamp | null;
  finished_at: Timestamp | null;
  step_counts: StepCounts | null;
  durations: Durations;
}

/** In seconds. */
export interface AttemptDurations {
  waited: number;
  queued: number;
  ran: number;
  total: number;
}

/** Of all attempts together, up to the time of the response. */
export interface Durations extends AttemptDurations {
  attempt: AttemptDurations;
}

export interface StepCounts extends Record<StepState, number> {
  total: number;
  current: string | null;
}

/** A job as the stream sends it: with its edges the first time, later with null. */
export interface StreamedJob extends Job {
  depends_on: number[] | null;
}

/** A job as the page keeps it. */
export interface StoredJob extends Job {
  depends_on: number[];
}

export interface Step {
  job_id: number;
  name: string;
  position: number;
  state: StepState;
  error: string | null;
  /** How often it has run to an end. */
  attempts: number;
  max_attempts: number | null;
  run_after: Timestamp | null;
  started_at: Timestamp | null;
  finished_at: Timestamp | null;
  /** The duration of its runs together, in seconds. */
  ran: number | null;
}

export interface Dependency {
  depends_on: number;
  needs: "completed" | "finished";
  state: JobState;
}

export interface EarlierAttempt {
  number: number;
  pod: string | null;
  started_at: Timestamp | null;
  ended_at: Timestamp;
  outcome: string;
  error: string | null;
}

export interface JobDetails extends Job {
  payload: Record<string, unknown>;
  result: Record<string, unknown> | null;
  meta: Record<string, unknown>;
  submitted_by: string;
  dependencies: Dependency[];
  earlier_attempts: EarlierAttempt[];
}

export type LogLevel = "debug" | "info" | "warning" | "error" | "critical";

export interface LogLine {
  id: number;
  at: Timestamp;
  attempt: number;
  attempt_id: string;
  level: LogLevel;
  step: string | null;
  message: string;
  fields: Record<string, unknown> | null;
}

export interface LogPage {
  job_state: JobState;
  lines: LogLine[];
  /** The address of older lines. */
  previous: string | null;
  /** The address of lines that exist and are newer. */
  next: string | null;
  /** Where lines that are logged later begin. */
  after: number;
}

export interface LogQuery {
  after?: number;
  before?: number;
  step: string | null;
  level: string;
  limit: number;
}

export interface Reason {
  code: string;
  message: string;
}

export interface Why {
  reasons: Reason[];
}

/** How many jobs are in each state. */
export type StateCounts = Record<JobState, number>;

export interface Pipeline extends StateCounts {
  pipeline_id: string;
  state: PipelineState;
  /** From 0 to 1. */
  progress: number;
  jobs: number;
  created_at: Timestamp;
  started_at: Timestamp | null;
  finished_at: Timestamp | null;
}

export interface ListedPipeline extends Pipeline {
  first_id: number;
  job_type: string | null;
  scope: string | null;
}

export interface PipelinePage {
  pipelines: ListedPipeline[];
  /** The address of the next page. */
  next: string | null;
}

export interface Worker {
  pod: string;
  job_types: string[] | null;
  capacity: number;
  running: number;
  started_at: Timestamp;
  heartbeat_age_seconds: number;
  is_alive: boolean;
  /** null before its first heartbeat. */
  counts?: { wakes?: number; polls?: number; missed_wakes?: number; silent_seconds?: number } | null;
}

export interface Queue {
  queue: string;
  paused: boolean;
  max_running: number | null;
  running: number;
  due: number;
  scheduled: number;
  waiting: number;
  oldest_due_seconds: number | null;
}

export interface Workers {
  workers: Worker[];
}

export interface Queues {
  queues: Queue[];
  draining: boolean;
}

export interface Stats {
  types: TypeStats[];
}

export interface TypeStats {
  job_type: string | null;
  state: JobState;
  count: number;
  average_seconds: number | null;
  p50_seconds: number | null;
  p95_seconds: number | null;
  retried: number;
}

export interface Bucket {
  at: Timestamp;
  finished: number;
  failed: number;
  created: number;
}

export interface TypeDuration {
  job_type: string;
  at: Timestamp;
  p50_seconds: number;
  p95_seconds: number;
}

export interface History {
  minutes: number;
  bucket_seconds: number;
  buckets: Bucket[];
  durations: TypeDuration[];
}

export interface Me {
  permissions: Permission[];
  needs_token: boolean;
}

/** The answer to cancel, retry and recover: the state of each job that changed. */
export interface Changed {
  jobs?: Record<string, JobState>;
}

/** The newest answers that the overview shows; null where the server refused. */
export interface OverviewAnswers {
  history: History | null;
  types: TypeStats[] | null;
  workers: Worker[] | null;
  queues: Queue[] | null;
  isDraining: boolean;
  problems: string[];
}

/** RFC 9457; any member may be missing where a proxy answers. */
export interface Problem {
  title?: string;
  detail?: string;
  remedy?: string;
  errors?: { field: string; message: string }[];
}

// Streams

export interface PipelineSnapshot {
  pipeline: Pipeline;
  jobs: StreamedJob[];
  steps: Step[];
}

export type PipelineEvent =
  | { name: "snapshot"; data: PipelineSnapshot }
  | { name: "job"; data: StreamedJob }
  | { name: "step"; data: Step }
  | { name: "pipeline"; data: Pipeline }
  | { name: "end"; data: { state: PipelineState } }
  | { name: "reset"; data: { reason: string } };

export type PipelinesEvent =
  | { name: "snapshot"; data: { pipelines: ListedPipeline[] } }
  | { name: "pipeline"; data: ListedPipeline }
  | { name: "reset"; data: { reason: string } };

export type ConnectionState =
  "connecting" | "catching up" | "live" | "stale" | "reconnecting" | "paused" | "unavailable";

export interface ConnectionDetails {
  /** When the next attempt to connect starts, in milliseconds by this machine's clock. */
  retryAt?: number;
  message?: string;
}

export interface EventStream {
  close(): void;
}

// Views

/** The query of the page's address. */
export interface Params {
  view?: string;
  pipeline?: string;
  tab?: string;
  job?: string;
  group?: string;
  state?: string;
  find?: string;
  q?: string;
  job_type?: string;
  scope?: string;
  tag?: string;
  minutes?: string;
}

/** The parts of the page that a view uses. */
export interface App {
  may(permission: Permission): boolean;
  setTitle(title: string): void;
  openPipelineStream(
    id: string,
    onEvent: (event: PipelineEvent) => void,
    onUnavailable: (message: string) => void,
  ): EventStream;
  openPipelinesStream(onEvent: (event: PipelinesEvent) => void, onUnavailable?: (message: string) => void): EventStream;
}

export interface View {
  update(params: Params): void;
  close(): void;
}

export interface Tab {
  element: HTMLElement;
  draw(params: Params): void;
  close(): void;
}

/** An element that shows one value, and is updated in place. */
export interface Updatable<Item> {
  element: HTMLElement;
  update(item: Item): void;
}

// Elements

export type Child = Node | string | number | null | undefined | false | Child[];
export type AttributeValue = string | number | boolean | null | undefined;
export type Attributes = Record<string, AttributeValue | (() => void)>;

export interface GraphNode {
  key: string;
  /** The type of its jobs. */
  type: string | null;
  /** The ids of its jobs: more than one in a folded node. */
  jobs: number[];
  layer: number;
  /** Nodes of one layer are listed by this. */
  order: number;
  row: number;
  column: number;
  x: number;
  y: number;
}

export interface Edge {
  from: GraphNode;
  to: GraphNode;
  /** Whether `to` was chained by `from`, and does not depend on it. */
  chained: boolean;
}

export interface Layout {
  nodes: GraphNode[];
  edges: Edge[];
  columns: GraphNode[][];
  width: number;
  height: number;
  nodeSize: { width: number; height: number };
}

/** [milliseconds, value]; null: unknown. */
export type Point = [number, number | null];

export interface Series {
  name: string;
  /** A class of the style sheet, which gives the line its colour. */
  kind: string;
  points: Point[];
}

declare global {
  // Newer than the type checker's own declarations; not in every browser.
  interface JSON {
    rawJSON?(text: string): unknown;
    parse(text: string, reviver: (key: string, value: unknown, context?: { source: string }) => unknown): any;
  }
}
