// The jobs of a pipeline as a list: by state, by word, or the members of one folded node.

import * as address from "./router.js";
import { bar } from "./progress-bar.js";
import { h, setAttribute, setText } from "./dom.js";
import { badge, STATES } from "./states.js";
import { cell, table } from "./table.js";
import { between, duration, number } from "./time.js";

const COLUMNS = [
  ["state", "State"],
  ["name", "Job"],
  ["scope", "Scope"],
  ["message", "Progress"],
  ["pod", "Pod"],
  ["attempts", "Attempts"],
  ["duration", "Ran for"],
];

export class Jobs {
  #store;
  #drawing;
  #table;
  #params = {};
  #chips;
  #search;
  #group;
  #empty;
  #typing;
  #held = []; // the members of the folded node

  constructor(store, drawing) {
    this.#store = store;
    this.#drawing = drawing;
    this.#search = h("input", {
      type: "search",
      placeholder: "Type, scope, message or number",
      "aria-label": "Filter jobs by type, scope, message or number",
      input: () => this.#typed(),
    });
    this.#chips = ["", ...STATES].map((state) => [state, h("a", { class: "chip", "data-view": true })]);
    this.#group = h(
      "p",
      { class: "group", hidden: true },
      h("span", {}),
      h("b", {}),
      ", folded in the graph. ",
      h("a", { "data-view": true }, "Show all jobs"),
    );
    this.#empty = h("p", { class: "empty", hidden: true }, "No job matches.");
    this.#table = table("jobs", "Jobs", COLUMNS, { key: (row) => row.id, make: () => this.#row() });
    this.element = h(
      "section",
      { "aria-label": "Jobs" },
      h(
        "div",
        { class: "filters" },
        this.#search,
        h(
          "div",
          { class: "chips" },
          this.#chips.map(([, chip]) => chip),
        ),
      ),
      this.#group,
      this.#table.element,
      this.#empty,
    );
  }

  close() {
    this.#table.close();
    clearTimeout(this.#typing);
  }

  draw(params) {
    this.#params = params;
    if (document.activeElement !== this.#search) this.#search.value = params.find ?? "";
    const members = this.#members();
    const word = (params.find ?? "").toLowerCase();
    const found = members.filter(
      (row) =>
        !word ||
        [row.job_type, row.scope, row.status_message, String(row.id)].some((text) =>
          text?.toLowerCase().includes(word),
        ),
    );
    const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
    for (const row of found) counts[row.state] += 1;
    for (const [state, chip] of this.#chips) {
      setText(chip, `${state || "all"} ${number(state ? counts[state] : found.length)}`);
      setAttribute(chip, "href", address.to({ ...params, state }));
      setAttribute(chip, "aria-current", (params.state ?? "") === state ? "true" : null);
      chip.hidden = Boolean(state) && !counts[state] && params.state !== state;
    }
    const rows = params.state ? found.filter((row) => row.state === params.state) : found;
    this.#table.show(rows);
    this.#empty.hidden = rows.length > 0;
  }

  #members() {
    const { group = "" } = this.#params;
    if (group !== (this.#group.dataset.key ?? "")) this.#held = [];
    this.#group.dataset.key = group;
    const nodes = group ? this.#drawing.plan.nodes : [];
    // A node whose first job has become different has another name now: it is still the one that was chosen.
    const node =
      nodes.find(({ key }) => key === group) ??
      nodes.find(({ jobs }) => jobs.length > 1 && jobs.includes(this.#held.at(-1)));
    if (node) this.#held = node.jobs;
    const rows = this.#held.map((id) => this.#store.jobs.get(id)).filter(Boolean);
    this.#group.hidden = !rows.length;
    if (!rows.length) return [...this.#store.jobs.values()];
    const [count, type, , all] = this.#group.childNodes;
    setText(count, `${number(rows.length)} jobs of type `);
    setText(type, rows[0].job_type ?? "(adopted rows)");
    setAttribute(all, "href", address.to({ ...this.#params, group: null }));
    return rows;
  }

  #typed() {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(
      () => address.go({ ...this.#params, find: this.#search.value.trim() }, { replace: true }),
      200,
    );
  }

  #row() {
    const state = badge("pending");
    const link = h("a", { class: "cover", "data-view": true });
    const id = h("span", { class: "id" });
    const scope = cell("scope");
    const progress = bar("progress");
    const message = h("span", { class: "words" });
    const pod = cell("pod");
    const attempts = cell("attempts");
    const lasted = cell("duration");
    const element = h(
      "div",
      { role: "row", class: "row" },
      cell("state", state.element),
      cell("name", link, id),
      scope,
      cell("message", progress.element, message),
      pod,
      attempts,
      lasted,
    );
    return {
      element,
      update: (row) => {
        state.set(row.state);
        setText(link, row.job_type ?? "(adopted row)");
        setAttribute(link, "href", address.to({ ...this.#params, job: row.id }));
        setAttribute(element, "aria-selected", null);
        element.classList.toggle("chosen", String(row.id) === this.#params.job);
        setText(id, `#${row.id}`);
        setText(scope, row.scope ?? "");
        setAttribute(scope, "title", row.scope ?? "");
        progress.element.hidden = row.state !== "running" || row.progress === null;
        progress.set(row.progress ?? 0, row.state);
        setAttribute(progress.element, "aria-label", `progress of job ${row.id}`);
        const words = row.state === "failed" || row.state === "cancelled" ? row.error : row.status_message;
        setText(message, words?.split("\n")[0] ?? "");
        setAttribute(message, "title", words ?? "");
        setText(pod, row.locked_by ?? "");
        setText(attempts, row.attempts ? `${row.attempts}${row.quota ? ` of ${row.quota}` : ""}` : "");
        // Between two attempts it does not run, whenever it began.
        setText(
          lasted,
          row.started_at && (row.finished_at || row.state === "running")
            ? duration(between(row.started_at, row.finished_at))
            : "",
        );
      },
    };
  }
}
