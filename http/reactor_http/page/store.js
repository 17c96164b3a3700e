// @ts-check
// The newest state of each row that a stream sent: of one pipeline, or of many.

/**
 * @import {
 *   ListedPipeline, Pipeline, PipelineEvent, PipelinesEvent, PipelineSnapshot, Step, StoredJob, StreamedJob,
 * } from "./types.js"
 */

/** One pipeline with its jobs and steps. */
export class PipelineStore {
  /** @type {Pipeline | null} */
  pipeline = null;
  /**
   * Steps by job id and name.
   *
   * @type {Map<number, Map<string, Step>>}
   */
  steps = new Map();
  /** Grows when jobs appear or disappear, and the graph needs a new layout. */
  layoutVersion = 0;
  isLoaded = false;
  /** @type {Map<number, StoredJob>} */
  #jobs = new Map();
  #largestId = 0;
  #isSorted = true;

  /** @param {PipelineEvent} event */
  apply(event) {
    if (event.name === "snapshot") this.#replace(event.data);
    else if (event.name === "job") this.#putJob(event.data);
    else if (event.name === "step") this.#putStep(event.data);
    else if (event.name === "pipeline") this.pipeline = { ...this.pipeline, ...event.data };
  }

  /** @param {StreamedJob} row */
  #putJob(row) {
    const previous = this.#jobs.get(row.id);
    if (!previous) {
      this.layoutVersion += 1;
      this.#isSorted &&= row.id > this.#largestId;
      this.#largestId = Math.max(this.#largestId, row.id);
    }
    // Edges never change: the stream sends them with a new row, and null with later versions of it.
    this.#jobs.set(row.id, { ...previous, ...row, depends_on: row.depends_on ?? previous?.depends_on ?? [] });
  }

  /** @param {Step} row */
  #putStep(row) {
    const steps = this.steps.get(row.job_id) ?? new Map();
    this.steps.set(row.job_id, steps.set(row.name, row));
  }

  /** @param {PipelineSnapshot} snapshot */
  #replace({ pipeline, jobs, steps }) {
    this.pipeline = pipeline;
    this.#jobs = new Map();
    this.#largestId = 0;
    this.steps = new Map();
    for (const job of jobs) this.#putJob(job);
    for (const step of steps) this.#putStep(step);
    this.layoutVersion += 1;
    this.isLoaded = true;
  }

  /** By id, in id order: a transaction that took its ids earlier may commit later. */
  get jobs() {
    if (!this.#isSorted) this.#jobs = new Map([...this.#jobs].sort(([a], [b]) => a - b));
    this.#isSorted = true;
    return this.#jobs;
  }

  /** The first job, which names the pipeline; rows adopted from elsewhere don't count. */
  get first() {
    for (const job of this.jobs.values()) if (job.job_type !== null) return job;
    return null;
  }

  /** @param {number} id */
  stepsOf(id) {
    return [...(this.steps.get(id)?.values() ?? [])].sort((a, b) => a.position - b.position);
  }
}

const MAX_PIPELINES = 5000; // in a page that stays open for weeks

/** Many pipelines, newest first. */
export class PipelinesStore {
  /** How many events were applied. A response that was requested before an event may be older than it. */
  version = 0;
  /** @type {Map<string, ListedPipeline & { version: number }>} */
  #rows = new Map();

  /** @param {PipelinesEvent} event */
  apply(event) {
    this.version += 1;
    if (event.name === "snapshot") {
      for (const row of event.data.pipelines) this.put(row);
    } else if (event.name === "reset") {
      this.#rows.clear();
    } else if (event.name === "pipeline") {
      this.put(event.data);
      if (this.#rows.size > MAX_PIPELINES) this.#dropOldest();
    }
  }

  /**
   * @param {ListedPipeline} row
   * @param {number} [version] of the store when the row was requested
   */
  put(row, version = this.version) {
    const previous = this.#rows.get(row.pipeline_id);
    if (previous && previous.version > version) return;
    this.#rows.set(row.pipeline_id, { ...previous, ...row, version });
  }

  /**
   * Drops all others.
   *
   * @param {Set<string>} ids
   */
  keepOnly(ids) {
    for (const id of this.#rows.keys()) if (!ids.has(id)) this.#rows.delete(id);
  }

  sorted() {
    return [...this.#rows.values()].sort((a, b) => b.first_id - a.first_id);
  }

  /** Drops the oldest finished pipelines, a tenth of the maximum at a time. */
  #dropOldest() {
    const finished = this.sorted().filter((row) => row.state !== "running");
    for (const row of finished.slice(-MAX_PIPELINES / 10)) this.#rows.delete(row.pipeline_id);
  }
}
