// What went wrong in a pipeline, readable without opening each job.

import * as address from "./router.js";
import { h, setAttribute, setChildren, setText } from "./dom.js";
import { shape } from "./states.js";
import { age, number } from "./time.js";

const MOST = 50;

/** Those that failed by themselves; what was cancelled because of them would only hide them. */
export const failures = (store) =>
  [...store.jobs.values()].filter((row) => row.state !== "cancelled" && (row.error || brokenSteps(store, row).length));

function brokenSteps(store, row) {
  const steps = store.steps.get(row.id);
  return steps ? [...steps.values()].filter((step) => step.state === "failed") : [];
}

export class Errors {
  #store;
  #items = new Map(); // job id -> what is shown of it: whoever reads one keeps their place while others come
  #list = h("ul", { class: "errors" });
  #more = h("p", { class: "muted" }, h("span", {}), h("a", { "data-view": true }, "all that failed"));
  #empty = h("p", { class: "empty" }, "Nothing has gone wrong.");
  element = h("section", { "aria-label": "Errors" }, this.#list, this.#more, this.#empty);

  constructor(store) {
    this.#store = store;
  }

  close() {}

  draw(params) {
    const rows = failures(this.#store).sort((a, b) => rank(a) - rank(b) || b.id - a.id);
    this.#items = new Map(rows.slice(0, MOST).map((row) => [row.id, this.#item(row, params)]));
    setChildren(
      this.#list,
      [...this.#items.values()].map(({ element }) => element),
    );
    this.#list.hidden = !rows.length;
    this.#empty.hidden = rows.length > 0;
    this.#more.hidden = rows.length <= MOST;
    setText(this.#more.firstChild, `and ${number(rows.length - MOST)} more: `);
    setAttribute(this.#more.lastChild, "href", address.to({ ...params, tab: "jobs", state: "failed", job: null }));
  }

  #item(row, params) {
    const broken = brokenSteps(this.#store, row);
    const facts = JSON.stringify([row.state, row.attempts, row.locked_by, row.error, broken]);
    const before = this.#items.get(row.id);
    const item = before?.facts === facts ? before : { facts, ...make(row, broken) };
    setAttribute(item.link, "href", address.to({ ...params, job: row.id }));
    setText(item.since, row.finished_at ? `, ${age(row.finished_at)}` : "");
    return item;
  }
}

function make(row, broken) {
  const link = h("a", { "data-view": true }, `${row.job_type ?? "(adopted row)"} #${row.id}`);
  const since = h("span", { class: "muted" });
  const element = h(
    "li",
    {},
    h(
      "p",
      {},
      shape(row.state, row.state),
      " ",
      link,
      h("span", { class: "muted" }, ` ${outcome(row)}, on ${row.locked_by ?? "no pod"}`),
      since,
    ),
    row.error && h("pre", { class: "error", tabindex: 0, "aria-label": `Error of job ${row.id}` }, row.error),
    broken
      .slice(0, STEPS_SHOWN)
      .map((step) =>
        h(
          "div",
          { class: "broken-step" },
          h("p", {}, shape("failed", "failed"), ` step ${step.name}`),
          h(
            "pre",
            { class: "error", tabindex: 0, "aria-label": `Error of step ${step.name}` },
            step.error ?? "no message",
          ),
        ),
      ),
    broken.length > STEPS_SHOWN && h("p", { class: "muted" }, `and ${number(broken.length - STEPS_SHOWN)} more steps`),
  );
  return { element, link, since };
}

const STEPS_SHOWN = 10;

const rank = (row) => ["failed", "partial"].indexOf(row.state) >>> 0;

function outcome(row) {
  if (row.state === "failed" || row.state === "partial")
    return `${row.state} after ${row.attempts} ${row.attempts === 1 ? "attempt" : "attempts"}`;
  if (row.state === "completed") return `completed, but attempt ${Math.max(1, row.attempts - 1)} failed`;
  // The error is of the attempt before; without one it is a step that failed, in an attempt that goes on.
  if (row.state === "running")
    return `${row.error && row.attempts > 1 ? `attempt ${row.attempts - 1} failed, ` : ""}attempt ${row.attempts} runs`;
  return row.error && row.attempts ? `attempt ${row.attempts} failed, it is tried again` : "is to run again";
}
