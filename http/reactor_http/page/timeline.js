// @ts-check
// When each job waited, for which job, and when it ran.

import { h, setAttribute, setText } from "./dom.js";
import { hrefTo } from "./router.js";
import { setShape, shape, TERMINAL } from "./states.js";
import { cell, table } from "./table.js";
import { clock, duration, now, toMs, toMsOrNull } from "./time.js";

/** @import { Params, StoredJob, Updatable } from "./types.js" */
/** @import { PipelineStore } from "./store.js" */

/** @type {import("./table.js").Column[]} */
const COLUMNS = [
  ["name", "Job"],
  ["track", "Time"],
  ["text", "Wait and run times"],
];
const LEGEND = [
  ["waiting", "waiting for other jobs"],
  ["queued", "queued"],
  ["running", "running"],
];
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const AXIS_STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12, 24].map((hours) => hours * HOUR),
];
const NARROW_AXIS = 300; // pixels

/**
 * The phases of a job in milliseconds: waiting from `created`, queued from `ready`, running from `started` to `end`.
 *
 * @typedef {object} Phases
 * @property {number} created
 * @property {number} ready
 * @property {number} started
 * @property {number} end
 * @property {StoredJob | null} blocker the job that it waited for longest
 * @property {boolean} hasRun
 */

/**
 * @param {StoredJob} job
 * @param {Map<number, StoredJob>} jobs
 * @param {number} present
 * @returns {Phases}
 */
export function phases(job, jobs, present) {
  const created = toMs(job.created_at);
  const end = toMsOrNull(job.finished_at) ?? present;
  const firstStart = toMsOrNull(job.started_at);
  const needed = job.depends_on.flatMap((id) => jobs.get(id) ?? []);
  const last = lastFinished(needed, end);
  const isWaiting = job.state === "waiting";
  const isRunning = job.state === "running";
  let ready = created;
  if (isWaiting) ready = end;
  else if (last) ready = Math.min(firstStart ?? end, Math.max(created, last.finishedAt));
  const started = firstStart ?? (isRunning ? toMsOrNull(job.locked_at) : null) ?? end;
  const unfinished = isWaiting ? needed.find((other) => !other.finished_at) : null;
  return {
    created,
    ready,
    started: Math.max(started, ready),
    end: Math.max(end, ready),
    blocker: unfinished ?? last?.job ?? null,
    hasRun: firstStart !== null || isRunning,
  };
}

/**
 * The job that finished last. One that finished after `end`, when the waiting job was cancelled, did not block it.
 *
 * @param {StoredJob[]} jobs
 * @param {number} end
 */
function lastFinished(jobs, end) {
  /** @type {{ job: StoredJob, finishedAt: number } | null} */
  let last = null;
  for (const job of jobs) {
    const finishedAt = toMsOrNull(job.finished_at);
    if (finishedAt === null || finishedAt > end) continue;
    if (!last || finishedAt > last.finishedAt) last = { job, finishedAt };
  }
  return last;
}

/**
 * @param {StoredJob} job
 * @param {Phases} phases
 */
function describePhases(job, { created, ready, started, end, blocker, hasRun }) {
  const parts = [];
  if (blocker && ready > created) {
    parts.push(`waited ${duration((ready - created) / 1000)} for ${blocker.job_type ?? "adopted row"} #${blocker.id}`);
  }
  if (started - ready >= 1) parts.push(`queued ${duration((started - ready) / 1000)}`);
  if (hasRun) parts.push(describeRun(job, duration((end - started) / 1000)));
  if (job.attempts > 1) parts.push(`${job.attempts} attempts`);
  if (job.state === "cancelled" && !hasRun) parts.push("cancelled");
  return parts.join(", ") || job.state;
}

/**
 * @param {StoredJob} job
 * @param {string} ranFor
 */
function describeRun(job, ranFor) {
  if (job.state === "running") return `running for ${ranFor}`;
  // Between two attempts a job does not run, whenever it started first.
  return TERMINAL.has(job.state) ? `ran ${ranFor}` : `first attempt ${ranFor} ago`;
}

/**
 * The distance of the axis marks: a round time, with at most `count` of them in `span`.
 *
 * @param {number} span milliseconds
 * @param {number} count
 */
export function axisStep(span, count) {
  return AXIS_STEPS.find((step) => span / step <= count) ?? Math.ceil(span / count / DAY) * DAY;
}

/** @typedef {{ job: StoredJob, phases: Phases }} Item */

export class Timeline {
  #store;
  #table;
  /** @type {Params} */
  #params = {};
  #from = 0;
  #to = 1;
  #axis = h("div", { class: "axis", "aria-hidden": "true" });
  #range = h("p", { class: "muted" });

  /** @param {PipelineStore} store */
  constructor(store) {
    this.#store = store;
    /** @param {Item} item */
    const key = (item) => item.job.id;
    this.#table = table("timeline", "Timeline", COLUMNS, { key, makeRow: () => this.#makeRow() });
    this.#table.head.querySelector(".track")?.append(this.#axis);
    const legend = LEGEND.map(([kind, label]) =>
      h("span", {}, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), label),
    );
    const head = h("div", { class: "legend" }, legend, this.#range);
    this.element = h("section", { "aria-label": "Timeline" }, head, this.#table.element);
  }

  close() {
    this.#table.close();
  }

  /** @param {Params} params */
  draw(params) {
    this.#params = params;
    const present = now();
    const jobs = this.#store.jobs;
    const items = [...jobs.values()].map((job) => ({ job, phases: phases(job, jobs, present) }));
    if (!items.length) return;
    this.#from = items.reduce((least, item) => Math.min(least, item.phases.created), Infinity);
    const end = items.reduce((most, item) => Math.max(most, item.phases.end), 0);
    this.#to = Math.max(this.#from + 10, end);
    items.sort((a, b) => a.phases.started - b.phases.started || a.job.id - b.job.id);
    this.#drawAxis();
    setText(this.#range, `from ${clock(this.#from)}, ${duration((this.#to - this.#from) / 1000)} in total`);
    this.#table.show(items);
  }

  #drawAxis() {
    const span = this.#to - this.#from;
    const step = axisStep(span, this.#axis.clientWidth < NARROW_AXIS ? 3 : 6);
    const marks = [];
    for (let at = 0; at <= span * 0.94; at += step) marks.push(at);
    const facts = marks.join() + span;
    if (this.#axis.dataset.facts === facts) return;
    this.#axis.dataset.facts = facts;
    const elements = marks.map((at) => {
      const mark = h("span", {}, at ? duration(at / 1000) : "0");
      mark.style.left = `${(at / span) * 100}%`;
      return mark;
    });
    this.#axis.replaceChildren(...elements);
  }

  /** @returns {Updatable<Item>} */
  #makeRow() {
    const icon = shape("pending");
    const link = h("a", { class: "row-link", "data-view": true });
    const id = h("span", { class: "id" });
    const waiting = h("i", { class: "phase waiting" });
    const queued = h("i", { class: "phase queued" });
    const running = h("i", { class: "phase running" });
    const text = cell("text");
    const track = cell("track", waiting, queued, running);
    const element = h("div", { role: "row", class: "row" }, cell("name", icon, link, id), track, text);
    return {
      element,
      update: ({ job, phases }) => {
        const { created, ready, started, end, hasRun } = phases;
        setShape(icon, job.state);
        setText(link, job.job_type ?? "(adopted row)");
        setAttribute(link, "href", hrefTo({ ...this.#params, job: job.id }));
        setText(id, `#${job.id}`);
        this.#placePhase(waiting, created, ready);
        this.#placePhase(queued, ready, hasRun ? started : end);
        this.#placePhase(running, started, hasRun ? end : started);
        setAttribute(running, "class", `phase running is-${job.state}`);
        const description = describePhases(job, { ...phases, started: hasRun ? started : end });
        setText(text, description);
        setAttribute(text, "title", description);
        element.classList.toggle("selected", String(job.id) === this.#params.job);
      },
    };
  }

  /**
   * @param {HTMLElement} element
   * @param {number} from
   * @param {number} to
   */
  #placePhase(element, from, to) {
    const span = this.#to - this.#from;
    element.hidden = to <= from;
    element.style.left = `${((from - this.#from) / span) * 100}%`;
    element.style.width = `${((to - from) / span) * 100}%`;
  }
}
