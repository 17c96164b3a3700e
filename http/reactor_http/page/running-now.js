// @ts-check
// The running jobs of a pipeline and their pods; if nothing is running, the reason.

import * as api from "./api.js";
import { h, setAttribute, setChildren, setText } from "./dom.js";
import { percent } from "./progress-bar.js";
import { hrefTo } from "./router.js";
import { shape } from "./states.js";
import { duration, number, secondsBetween } from "./time.js";

/** @import { PipelineStore } from "./store.js" */
/** @import { Params, Pipeline, StoredJob } from "./types.js" */

const MAX_JOBS = 6;
const GRACE_MS = 1500; // between two jobs there is always a moment with none: that needs no explanation
const RELOAD_MS = 5000;

/** @typedef {{ element: HTMLElement, link: HTMLElement, text: HTMLElement }} Line */

export class RunningNow {
  #pipelineId;
  #store;
  #requestDraw;
  /**
   * By job id.
   *
   * @type {Map<number, Line>}
   */
  #lines = new Map();
  /**
   * The job that runs next, if nothing runs.
   *
   * @type {number | null}
   */
  #nextId = null;
  /**
   * Why that job does not run.
   *
   * @type {{ element: HTMLElement, link: HTMLElement } | null}
   */
  #why = null;
  /** @type {number | undefined} */
  #timer;
  element = h("section", { class: "running-now", "aria-label": "Running now" });

  /**
   * @param {string} pipelineId
   * @param {PipelineStore} store
   * @param {() => void} requestDraw
   */
  constructor(pipelineId, store, requestDraw) {
    this.#pipelineId = pipelineId;
    this.#store = store;
    this.#requestDraw = requestDraw;
  }

  close() {
    clearTimeout(this.#timer);
    this.#nextId = null;
  }

  /**
   * @param {Pipeline} pipeline
   * @param {Params} params
   */
  draw(pipeline, params) {
    const running = [...this.#store.jobs.values()].filter((job) => job.state === "running");
    this.#setNext(pipeline.state === "running" && !running.length ? this.#findNext() : null);
    const shown = running.slice(0, MAX_JOBS);
    this.#lines = new Map(shown.map((job) => [job.id, this.#lines.get(job.id) ?? makeLine(job)]));
    const elements = shown.flatMap((job) => this.#drawLine(job, params) ?? []);
    if (running.length > shown.length) {
      const href = hrefTo({ pipeline: this.#pipelineId, tab: "jobs", state: "running" });
      const link = h("a", { "data-view": true, href }, `and ${number(running.length - shown.length)} more`);
      elements.push(h("p", { class: "muted" }, link));
    }
    if (!running.length && this.#why) {
      setAttribute(this.#why.link, "href", hrefTo({ ...params, job: this.#nextId }));
      elements.push(this.#why.element);
    }
    this.element.hidden = !elements.length;
    setChildren(this.element, elements);
  }

  /**
   * @param {StoredJob} job
   * @param {Params} params
   */
  #drawLine(job, params) {
    const line = this.#lines.get(job.id);
    if (!line) return null;
    const progress = job.progress === null ? "" : `${percent(job.progress)} % · `;
    const message = job.status_message ? ` · ${job.status_message}` : "";
    const time = duration(secondsBetween(job.locked_at));
    setAttribute(line.link, "href", hrefTo({ ...params, job: job.id }));
    setText(line.text, `${progress}on ${job.locked_by ?? "?"} for ${time}${message}`);
    return line.element;
  }

  #findNext() {
    // Adopted rows stay pending, and never run.
    const jobs = [...this.#store.jobs.values()].filter((job) => job.job_type !== null);
    return jobs.find((job) => job.state === "pending") ?? jobs.find((job) => job.state === "waiting") ?? null;
  }

  /** @param {StoredJob | null} job */
  #setNext(job) {
    const id = job?.id ?? null;
    if (id === this.#nextId) return;
    this.#nextId = id;
    this.#why = null;
    clearTimeout(this.#timer);
    if (job) this.#timer = setTimeout(() => this.#loadWhy(job), GRACE_MS);
  }

  /** @param {StoredJob} job */
  async #loadWhy(job) {
    try {
      const { reasons } = await api.getWhy(job.id);
      if (this.#nextId !== job.id) return;
      const link = h("a", { "data-view": true }, nameOf(job));
      const text = `. ${reasons.map((reason) => reason.message).join(" ")}`;
      this.#why = { link, element: h("p", { class: "why-not-running" }, "Nothing is running. Next: ", link, text) };
      this.#requestDraw();
    } catch {
      // The connection status says that the server does not answer.
    }
    if (this.#nextId === job.id) this.#timer = setTimeout(() => this.#loadWhy(job), RELOAD_MS);
  }
}

/** @param {StoredJob} job */
const nameOf = (job) => `${job.job_type ?? "(adopted row)"} #${job.id}`;

/** @param {StoredJob} job */
function makeLine(job) {
  const link = h("a", { "data-view": true }, nameOf(job));
  const text = h("span", { class: "muted" });
  return { element: h("p", {}, shape("running"), link, text), link, text };
}
