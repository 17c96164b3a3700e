// What went wrong in a pipeline, readable without opening each job.

import * as address from "./address.js";
import { h } from "./dom.js";
import { shape } from "./state.js";
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
  #store; #facts = null;
  element = h("section", { "aria-label": "Errors" });

  constructor(store) {
    this.#store = store;
  }

  close() {}

  draw(params) {
    const rows = failures(this.#store).sort((a, b) => rank(a) - rank(b) || b.id - a.id);
    const facts = JSON.stringify([params, rows.map((row) => [row.id, row.state, row.attempts, row.error, brokenSteps(this.#store, row)])]);
    if (facts === this.#facts) return;
    this.#facts = facts;
    if (!rows.length) {
      this.element.replaceChildren(h("p", { class: "empty" }, "Nothing has gone wrong."));
      return;
    }
    const items = rows.slice(0, MOST).map((row) => h("li", {},
      h("p", {}, shape(row.state, row.state), " ", h("a", { href: address.to({ ...params, job: row.id }), "data-view": true }, `${row.job_type ?? "(adopted row)"} #${row.id}`),
        h("span", { class: "muted" }, ` ${outcome(row)}, on ${row.locked_by ?? "no pod"}${row.finished_at ? `, ${age(row.finished_at)}` : ""}`)),
      row.error && h("pre", { class: "error", tabindex: 0, "aria-label": `Error of job ${row.id}` }, row.error), this.#steps(row)));
    const more = rows.length > MOST && h("p", { class: "muted" }, `and ${number(rows.length - MOST)} more: `,
      h("a", { href: address.to({ ...params, tab: "jobs", state: "failed", job: null }), "data-view": true }, "all that failed"));
    this.element.replaceChildren(...[h("ul", { class: "errors" }, items), more].filter(Boolean));
  }

  #steps(row) {
    const broken = brokenSteps(this.#store, row);
    return [
      ...broken.slice(0, STEPS_SHOWN).map((step) => h("div", { class: "broken-step" }, h("p", {}, shape("failed", "failed"), ` step ${step.name}`), h("pre", { class: "error", tabindex: 0, "aria-label": `Error of step ${step.name}` }, step.error ?? "no message"))),
      broken.length > STEPS_SHOWN && h("p", { class: "muted" }, `and ${number(broken.length - STEPS_SHOWN)} more steps`),
    ];
  }
}

const STEPS_SHOWN = 10;

const rank = (row) => ["failed", "partial"].indexOf(row.state) >>> 0;

function outcome(row) {
  if (row.state === "failed" || row.state === "partial") return `${row.state} after ${row.attempts} ${row.attempts === 1 ? "attempt" : "attempts"}`;
  return row.state === "completed" ? `completed, but attempt ${Math.max(1, row.attempts - 1)} failed` : `attempt ${row.attempts} failed, it is tried again`;
}
