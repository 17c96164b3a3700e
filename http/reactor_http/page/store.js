// What is known of one pipeline, or of many: the newest state of each row, as the stream told it.

/** One pipeline with its jobs and steps. */
export class PipelineStore {
  pipeline = null;
  steps = new Map(); // job id -> name -> step
  shape = 0; // grows when jobs come or go: then the drawing is laid out anew
  changed = new Set(); // jobs whose row changed since somebody emptied this
  known = false;
  #jobs = new Map();
  #largest = 0;
  #inOrder = true;

  apply(name, data) {
    if (name === "snapshot") this.#replace(data);
    else if (name === "job") this.#job(data);
    else if (name === "step") this.#step(data);
    else if (name === "pipeline") this.pipeline = { ...this.pipeline, ...data };
  }

  /** In the order of their numbers: a transaction that took its numbers earlier may commit later. */
  get jobs() {
    if (!this.#inOrder) this.#jobs = new Map([...this.#jobs].sort(([a], [b]) => a - b));
    this.#inOrder = true;
    return this.#jobs;
  }

  /** What the pipeline is called after: its first job; rows adopted from elsewhere are no part of what it does. */
  get first() {
    for (const job of this.jobs.values()) if (job.job_type !== null) return job;
    return null;
  }

  stepsOf(id) {
    return [...(this.steps.get(id)?.values() ?? [])].sort((a, b) => a.position - b.position);
  }

  #replace({ pipeline, jobs, steps }) {
    this.pipeline = pipeline;
    this.#jobs = new Map();
    this.#largest = 0;
    this.steps = new Map();
    for (const job of jobs) this.#job(job);
    for (const step of steps) this.#step(step);
    this.shape += 1;
    this.known = true;
  }

  #job(row) {
    const before = this.#jobs.get(row.id);
    if (!before) {
      this.shape += 1;
      this.#inOrder &&= row.id > this.#largest;
      this.#largest = Math.max(this.#largest, row.id);
    }
    // Edges never change: they come with a row that is new, and are null when it comes again.
    this.#jobs.set(row.id, { ...before, ...row, depends_on: row.depends_on ?? before?.depends_on ?? [] });
    this.changed.add(row.id);
  }

  #step(row) {
    if (!this.steps.has(row.job_id)) this.steps.set(row.job_id, new Map());
    this.steps.get(row.job_id).set(row.name, row);
    this.changed.add(row.job_id);
  }
}

const MOST = 5000; // pipelines kept by a page that stays open for weeks

/** Many pipelines, newest first. */
export class PipelinesStore {
  rows = new Map();
  known = false;
  told = 0; // how many events there were: what was asked for before one of them may be older than it

  apply(name, data) {
    this.told += 1;
    if (name === "snapshot") {
      for (const row of data.pipelines) this.put(row);
      this.known = true;
    } else if (name === "reset") {
      this.rows.clear();
    } else if (name === "pipeline") {
      this.put(data);
      if (this.rows.size > MOST) this.#forget();
    }
  }

  /** `told`: how many events there were when it was asked for. */
  put(row, told = this.told) {
    const before = this.rows.get(row.pipeline_id);
    if (!(before?.told > told)) this.rows.set(row.pipeline_id, { ...before, ...row, told });
  }

  /** Forgets all others. */
  keep(ids) {
    for (const id of this.rows.keys()) if (!ids.has(id)) this.rows.delete(id);
  }

  /** The oldest of those that have ended, a tenth at a time. */
  #forget() {
    const ended = this.sorted().filter((row) => row.state !== "running");
    for (const row of ended.slice(-MOST / 10)) this.rows.delete(row.pipeline_id);
  }

  sorted() {
    return [...this.rows.values()].sort((a, b) => b.first_id - a.first_id);
  }
}
