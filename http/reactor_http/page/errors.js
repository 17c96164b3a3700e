// @ts-check
// The errors of a pipeline, readable without opening each job.

import { h, setAttribute, setChildren, setText } from "./dom.js";
import { hrefTo } from "./router.js";
import { shape } from "./states.js";
import { age, number } from "./time.js";

/** @import { Params, Step, StoredJob } from "./types.js" */
/** @import { PipelineStore } from "./store.js" */

const MAX_JOBS = 50;
const MAX_STEPS = 10; // per job

/**
 * The jobs with an error of their own. Jobs that were cancelled because of them would only hide them.
 *
 * @param {PipelineStore} store
 */
export const jobsWithErrors = (store) =>
  [...store.jobs.values()].filter((job) => job.state !== "cancelled" && (job.error || failedSteps(store, job).length));

/**
 * @param {PipelineStore} store
 * @param {StoredJob} job
 */
function failedSteps(store, job) {
  return [...(store.steps.get(job.id)?.values() ?? [])].filter((step) => step.state === "failed");
}

/** @typedef {{ facts: string, element: HTMLElement, link: HTMLElement, since: HTMLElement }} Item */

export class Errors {
  #store;
  /**
   * By job id: an item whose job is unchanged stays, with its focus and scroll position.
   *
   * @type {Map<number, Item>}
   */
  #items = new Map();
  #list = h("ul", { class: "errors" });
  #moreCount = h("span", {});
  #moreLink = h("a", { "data-view": true }, "Show all failed jobs");
  #more = h("p", { class: "muted" }, this.#moreCount, this.#moreLink);
  #empty = h("p", { class: "empty" }, "No errors.");
  element = h("section", { "aria-label": "Errors" }, this.#list, this.#more, this.#empty);

  /** @param {PipelineStore} store */
  constructor(store) {
    this.#store = store;
  }

  close() {}

  /** @param {Params} params */
  draw(params) {
    const jobs = jobsWithErrors(this.#store).sort((a, b) => rank(a) - rank(b) || b.id - a.id);
    this.#items = new Map(jobs.slice(0, MAX_JOBS).map((job) => [job.id, this.#item(job, params)]));
    const elements = [...this.#items.values()].map(({ element }) => element);
    setChildren(this.#list, elements);
    this.#list.hidden = !jobs.length;
    this.#empty.hidden = jobs.length > 0;
    this.#more.hidden = jobs.length <= MAX_JOBS;
    setText(this.#moreCount, `and ${number(jobs.length - MAX_JOBS)} more. `);
    setAttribute(this.#moreLink, "href", hrefTo({ ...params, tab: "jobs", state: "failed", job: null }));
  }

  /**
   * @param {StoredJob} job
   * @param {Params} params
   */
  #item(job, params) {
    const steps = failedSteps(this.#store, job);
    const facts = JSON.stringify([job.state, job.attempts, job.locked_by, job.error, steps]);
    const previous = this.#items.get(job.id);
    const item = previous?.facts === facts ? previous : { facts, ...makeItem(job, steps) };
    setAttribute(item.link, "href", hrefTo({ ...params, job: job.id }));
    setText(item.since, job.finished_at ? `, ${age(job.finished_at)}` : "");
    return item;
  }
}

/**
 * @param {StoredJob} job
 * @param {Step[]} steps
 */
function makeItem(job, steps) {
  const link = h("a", { "data-view": true }, `${job.job_type ?? "(adopted row)"} #${job.id}`);
  const since = h("span", { class: "muted" });
  const facts = h("span", { class: "muted" }, ` ${outcome(job)}${job.locked_by ? `, on ${job.locked_by}` : ""}`);
  const element = h(
    "li",
    {},
    h("p", {}, shape(job.state, job.state), " ", link, facts, since),
    job.error && errorText(job.error, `Error of job ${job.id}`),
    steps
      .slice(0, MAX_STEPS)
      .map((step) =>
        h(
          "div",
          { class: "failed-step" },
          h("p", {}, shape("failed", "failed"), ` step ${step.name}`),
          errorText(step.error ?? "no message", `Error of step ${step.name}`),
        ),
      ),
    steps.length > MAX_STEPS && h("p", { class: "muted" }, `and ${number(steps.length - MAX_STEPS)} more steps`),
  );
  return { element, link, since };
}

/**
 * @param {string} text
 * @param {string} label
 */
const errorText = (text, label) => h("pre", { class: "error", tabindex: 0, "aria-label": label }, text);

/**
 * Failed jobs first, then partial ones.
 *
 * @param {StoredJob} job
 */
const rank = (job) => (job.state === "failed" ? 0 : job.state === "partial" ? 1 : 2);

/** @param {StoredJob} job */
function outcome({ state, attempts, error }) {
  if (state === "failed" || state === "partial") {
    return `${state} after ${attempts} ${attempts === 1 ? "attempt" : "attempts"}`;
  }
  if (state === "completed") return `completed, but attempt ${Math.max(1, attempts - 1)} failed`;
  if (state === "running") {
    // The error is the previous attempt's. Without one, a step failed in the attempt that runs.
    const previous = error && attempts > 1 ? `attempt ${attempts - 1} failed, ` : "";
    return `${previous}attempt ${attempts} running`;
  }
  return error && attempts ? `attempt ${attempts} failed, will be retried` : "will run again";
}
