// @ts-check
// The jobs of a pipeline as a table: all, by state, by search text, or those of one folded node.

import { h, setAttribute, setText } from "./dom.js";
import { progressBar } from "./progress-bar.js";
import { hrefTo, navigate } from "./router.js";
import { badge, countStates, STATES } from "./states.js";
import { cell, table } from "./table.js";
import { duration, number, secondsBetween } from "./time.js";

/** @import { Graph } from "./graph.js" */
/** @import { PipelineStore } from "./store.js" */
/** @import { Job, Params, StateCounts, StoredJob, Updatable } from "./types.js" */

/** @type {import("./table.js").Column[]} */
const COLUMNS = [
  ["state", "State"],
  ["name", "Job"],
  ["scope", "Scope"],
  ["message", "Progress"],
  ["pod", "Pod"],
  ["attempts", "Attempts"],
  ["duration", "Duration"],
];
const TYPING_MS = 200; // after the last key, before the list changes

/**
 * How long a job ran, or has run. Between two attempts it does not run, whenever it started first.
 *
 * @param {Job} job
 */
export function ranFor(job) {
  const isShown = job.started_at && (job.finished_at || job.state === "running");
  return isShown ? duration(secondsBetween(job.started_at, job.finished_at)) : "";
}

/** @param {Job} job */
export const attemptsText = (job) => (job.attempts ? `${job.attempts}${job.quota ? ` of ${job.quota}` : ""}` : "");

export class Jobs {
  #store;
  #graph;
  #table;
  /** @type {Params} */
  #params = {};
  /**
   * The ids of the folded node's jobs.
   *
   * @type {number[]}
   */
  #groupIds = [];
  #groupKey = "";
  /** @type {number | undefined} */
  #typingTimer;
  #search = h("input", {
    type: "search",
    placeholder: "Type, scope, message or id",
    "aria-label": "Filter jobs by type, scope, message or id",
    input: () => this.#onInput(),
  });
  #allChip = h("a", { class: "chip", "data-view": true });
  #stateChips = STATES.map((state) => ({ state, chip: h("a", { class: "chip", "data-view": true }) }));
  #groupCount = h("span", {});
  #groupType = h("b", {});
  #groupLink = h("a", { "data-view": true }, "Show all jobs");
  #group = h("p", { class: "group" }, this.#groupCount, this.#groupType, ", folded in the graph. ", this.#groupLink);
  #empty = h("p", { class: "empty", hidden: true }, "No jobs match.");

  /**
   * @param {PipelineStore} store
   * @param {Graph} graph
   */
  constructor(store, graph) {
    this.#store = store;
    this.#graph = graph;
    /** @param {StoredJob} job */
    const key = (job) => job.id;
    this.#table = table("jobs", "Jobs", COLUMNS, { key, makeRow: () => this.#makeRow() });
    const chips = h("div", { class: "chips" }, this.#allChip, ...this.#stateChips.map(({ chip }) => chip));
    const filters = h("div", { class: "filters" }, this.#search, chips);
    this.element = h("section", { "aria-label": "Jobs" }, filters, this.#group, this.#table.element, this.#empty);
  }

  close() {
    this.#table.close();
    clearTimeout(this.#typingTimer);
  }

  /** @param {Params} params */
  draw(params) {
    this.#params = params;
    if (document.activeElement !== this.#search) this.#search.value = params.find ?? "";
    const found = search(this.#listed(), params.find ?? "");
    this.#drawChips(found.length, countStates(found));
    const rows = params.state ? found.filter((job) => job.state === params.state) : found;
    this.#table.show(rows);
    this.#empty.hidden = rows.length > 0;
  }

  /**
   * @param {number} total
   * @param {StateCounts} counts
   */
  #drawChips(total, counts) {
    this.#drawChip(this.#allChip, "", `all ${number(total)}`);
    for (const { state, chip } of this.#stateChips) {
      this.#drawChip(chip, state, `${state} ${number(counts[state])}`);
      chip.hidden = !counts[state] && this.#params.state !== state;
    }
  }

  /**
   * @param {HTMLElement} chip
   * @param {string} state
   * @param {string} text
   */
  #drawChip(chip, state, text) {
    setText(chip, text);
    setAttribute(chip, "href", hrefTo({ ...this.#params, state }));
    setAttribute(chip, "aria-current", (this.#params.state ?? "") === state ? "true" : null);
  }

  /** The jobs of the folded node that the address names, else all. */
  #listed() {
    this.#findGroup(this.#params.group ?? "");
    const rows = this.#groupIds.flatMap((id) => this.#store.jobs.get(id) ?? []);
    this.#group.hidden = !rows.length;
    if (!rows.length) return [...this.#store.jobs.values()];
    setText(this.#groupCount, `${number(rows.length)} jobs of type `);
    setText(this.#groupType, rows[0].job_type ?? "(adopted rows)");
    setAttribute(this.#groupLink, "href", hrefTo({ ...this.#params, group: null }));
    return rows;
  }

  /** @param {string} key */
  #findGroup(key) {
    if (key !== this.#groupKey) this.#groupIds = [];
    this.#groupKey = key;
    if (!key) return;
    const { nodes } = this.#graph.layout;
    const lastId = this.#groupIds.at(-1);
    // A node's key changes when its first job is no longer like the others: then it is found by its last one.
    const node =
      nodes.find((other) => other.key === key) ??
      nodes.find(({ jobs }) => jobs.length > 1 && lastId !== undefined && jobs.includes(lastId));
    if (node) this.#groupIds = node.jobs;
  }

  #onInput() {
    clearTimeout(this.#typingTimer);
    this.#typingTimer = setTimeout(
      () => navigate({ ...this.#params, find: this.#search.value.trim() }, { replace: true }),
      TYPING_MS,
    );
  }

  /** @returns {Updatable<StoredJob>} */
  #makeRow() {
    const state = badge("pending");
    const link = h("a", { class: "row-link", "data-view": true });
    const id = h("span", { class: "id" });
    const scope = cell("scope");
    const progress = progressBar("Progress");
    const message = h("span", { class: "text" });
    const pod = cell("pod");
    const attempts = cell("attempts");
    const time = cell("duration");
    const element = h(
      "div",
      { role: "row", class: "row" },
      cell("state", state.element),
      cell("name", link, id),
      scope,
      cell("message", progress.element, message),
      pod,
      attempts,
      time,
    );
    return {
      element,
      update: (job) => {
        state.set(job.state);
        setText(link, job.job_type ?? "(adopted row)");
        setAttribute(link, "href", hrefTo({ ...this.#params, job: job.id }));
        element.classList.toggle("selected", String(job.id) === this.#params.job);
        setText(id, `#${job.id}`);
        setText(scope, job.scope ?? "");
        setAttribute(scope, "title", job.scope ?? "");
        progress.element.hidden = job.state !== "running" || job.progress === null;
        progress.set(job.progress, job.state);
        setAttribute(progress.element, "aria-label", `Progress of job ${job.id}`);
        const text = (job.state === "failed" || job.state === "cancelled" ? job.error : job.status_message) ?? "";
        setText(message, text.split("\n")[0]);
        setAttribute(message, "title", text);
        setText(pod, job.locked_by ?? "");
        setText(attempts, attemptsText(job));
        setText(time, ranFor(job));
      },
    };
  }
}

/**
 * @param {StoredJob[]} jobs
 * @param {string} text
 */
function search(jobs, text) {
  if (!text) return jobs;
  const wanted = text.toLowerCase();
  return jobs.filter((job) =>
    [job.job_type, job.scope, job.status_message, String(job.id)].some((field) =>
      field?.toLowerCase().includes(wanted),
    ),
  );
}
