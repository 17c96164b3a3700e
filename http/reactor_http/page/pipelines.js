// The list of pipelines: live, filtered by what the address says.

import * as address from "./router.js";
import * as api from "./api.js";
import { percent, shares } from "./progress-bar.js";
import { h, setAttribute, setText } from "./dom.js";
import { Frame } from "./redraw.js";
import { badge } from "./states.js";
import { PipelinesStore } from "./store.js";
import { cell, table } from "./table.js";
import { age, between, date, duration, number } from "./time.js";

const STATES = ["", "running", "completed", "partial", "failed", "cancelled"];
const FIELDS = { job_type: "Type", scope: "Scope", tag: "Tag" };
const COLUMNS = [
  ["state", "State"],
  ["name", "Pipeline"],
  ["scope", "Scope"],
  ["progress", "Progress"],
  ["count", "Jobs"],
  ["age", "Created"],
  ["duration", "Duration"],
];

export class PipelinesView {
  #params;
  #store = new PipelinesStore();
  #matched = new Set();
  #next = null;
  #asked = 0;
  #failure = null;
  #loaded = false;
  #deeper = false;
  #loading = 0;
  #outdated = false;
  #frame;
  #stream;
  #typing;
  #again;

  constructor(root, params, app) {
    this.#params = params;
    app.setTitle("Pipelines");
    this.#search = h("input", {
      type: "search",
      placeholder: "Search by id, type or scope",
      "aria-label": "Search by id, type or scope",
      input: () => this.#typed(),
    });
    this.#chips = STATES.map((state) =>
      h("button", { class: "chip", type: "button", click: () => this.#filter({ state }) }, state || "all"),
    );
    this.#fields = Object.entries(FIELDS).map(([name, label]) => {
      const input = h("input", { type: "text", name, autocomplete: "off", input: () => this.#typed() });
      return [name, input, h("label", { class: "field" }, label, input)];
    });
    this.#more = h(
      "details",
      { class: "more" },
      h("summary", {}, "More filters"),
      h(
        "div",
        { class: "fields" },
        this.#fields.map(([, , label]) => label),
      ),
    );
    this.#table = table("pipelines", "Pipelines", COLUMNS, { key: (row) => row.pipeline_id, make: () => this.#row() });
    this.#empty = h("div", { class: "empty" }, "Loading …");
    this.#older = h(
      "button",
      { class: "button", type: "button", hidden: true, click: () => this.#load(this.#next) },
      "Load older",
    );
    root.append(
      h("div", { class: "heading" }, h("h1", {}, "Pipelines"), this.#total),
      h(
        "div",
        { class: "filters", role: "search" },
        this.#search,
        h("div", { class: "chips", role: "group", "aria-label": "State" }, this.#chips),
        this.#more,
      ),
      this.#table.element,
      this.#empty,
      this.#older,
    );
    this.#frame = new Frame(() => this.#draw());
    this.#stream = app.stream(
      "v1/events",
      null,
      (name, data) => this.#event(name, data),
      (words) => {
        this.#failure = words;
        this.#frame.request();
      },
    );
    this.update(params);
  }

  #search;
  #chips;
  #fields;
  #more;
  #table;
  #empty;
  #older;
  #total = h("span", { class: "muted" });

  update(params) {
    this.#params = params;
    if (document.activeElement !== this.#search) this.#search.value = params.q ?? "";
    for (const [name, input] of this.#fields) if (document.activeElement !== input) input.value = params[name] ?? "";
    if (this.#fields.some(([name]) => params[name])) this.#more.open = true;
    STATES.forEach((state, index) =>
      setAttribute(this.#chips[index], "aria-pressed", String((params.state ?? "") === state)),
    );
    this.#startOver();
  }

  close() {
    this.#stream.close();
    this.#frame.close();
    this.#table.close();
    clearTimeout(this.#typing);
    clearTimeout(this.#again);
    this.#asked = -1;
  }

  #event(name, data) {
    if (name === "reset" && this.#needsServer) {
      // What is shown stays until the server has answered anew: where very much happens this comes every second.
      this.#outdated = true;
      if (!this.#loading) this.#load();
      return;
    }
    this.#store.apply(name, data);
    if (name === "reset") this.#startOver();
    // The events don't carry what only the server can match, and what leaves a state makes room for others in it: ask the
    // server, but not for each of them.
    const isPart = this.#needsServer || (this.#params.state && this.#next);
    if (isPart && name === "pipeline") this.#loadAgain();
    this.#frame.request();
  }

  #typed() {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => {
      const fields = Object.fromEntries(this.#fields.map(([name, input]) => [name, input.value.trim()]));
      address.go({ ...this.#params, ...fields, q: this.#search.value.trim() }, { replace: true });
    }, 250);
  }

  #filter(change) {
    address.go({ ...this.#params, ...change });
  }

  get #query() {
    const { state, q, job_type, scope, tag } = this.#params;
    return new URLSearchParams(Object.entries({ state, q, job_type, scope, tag }).filter(([, value]) => value));
  }

  get #needsServer() {
    const { q, job_type, scope, tag } = this.#params;
    return Boolean(q || job_type || scope || tag);
  }

  #startOver() {
    this.#matched.clear();
    this.#deeper = false;
    this.#outdated = false;
    this.#asked += 1;
    this.#load();
  }

  #loadAgain() {
    this.#again ??= setTimeout(() => {
      this.#again = null;
      this.#load();
    }, 3000);
  }

  async #load(next = null) {
    const asked = this.#asked;
    const told = this.#store.told;
    const renews = this.#outdated && !next;
    if (renews) this.#outdated = false;
    this.#loading += 1;
    const query = next
      ? new URL(next, location.href).search
      : `?${new URLSearchParams([...this.#query, ["limit", "100"]])}`;
    try {
      const page = await api.get(`v1/pipelines${query}`);
      if (asked !== this.#asked) return;
      if (renews) {
        this.#matched.clear();
        this.#deeper = false;
        this.#store.keep(new Set(page.pipelines.map((row) => row.pipeline_id)));
      }
      for (const row of page.pipelines) {
        this.#store.put(row, told);
        this.#matched.add(row.pipeline_id);
      }
      // Who has gone down to older ones goes on from there, also when the newest are asked for again.
      if (next || !this.#deeper) this.#next = page.next;
      this.#deeper ||= next !== null;
      this.#failure = null;
      this.#loaded = true;
      if (this.#outdated) this.#loadAgain();
    } catch (error) {
      if (asked !== this.#asked) return;
      this.#outdated ||= renews;
      this.#failure = error.words ?? error.message;
      const isRefused = error.status < 500;
      if (!isRefused) this.#loadAgain();
    } finally {
      this.#loading -= 1;
    }
    this.#frame.request();
  }

  #isShown(row) {
    if (this.#params.state && row.state !== this.#params.state) return false;
    return !this.#needsServer || this.#matched.has(row.pipeline_id);
  }

  #draw() {
    const rows = this.#store.sorted().filter((row) => this.#isShown(row));
    this.#table.show(rows);
    this.#older.hidden = !this.#next;
    this.#empty.hidden = rows.length > 0;
    const running = rows.filter((row) => row.state === "running").length;
    setText(this.#total, rows.length ? `${number(rows.length)} shown, ${number(running)} running` : "");
    if (rows.length) return;
    const filtered = this.#query.size > 0;
    if (this.#failure) setText(this.#empty, this.#failure);
    else if (!this.#loaded) setText(this.#empty, "Loading …");
    else if (filtered)
      this.#empty.replaceChildren(
        "No pipeline matches. ",
        h("a", { href: address.to({}), "data-view": true }, "Show all"),
      );
    else setText(this.#empty, "No pipelines yet. A row in reactor.jobs begins one, and it shows here at once.");
  }

  #row() {
    const state = badge("running");
    const link = h("a", { "data-view": true, class: "cover" });
    const id = h("span", { class: "id" });
    const name = cell("name", link, id);
    const scope = cell("scope");
    const bar = shares();
    const done = h("span", { class: "percent" });
    const count = cell("count");
    const created = cell("age");
    const lasted = cell("duration");
    const element = h(
      "div",
      { role: "row", class: "row" },
      cell("state", state.element),
      name,
      scope,
      cell("progress", bar.element, done),
      count,
      created,
      lasted,
    );
    return {
      element,
      update(row) {
        state.set(row.state);
        setText(link, row.job_type ?? "(adopted row)");
        setAttribute(link, "href", address.to({ pipeline: row.pipeline_id }));
        setText(id, row.pipeline_id.slice(0, 13));
        setAttribute(id, "title", row.pipeline_id);
        setText(scope, row.scope ?? "");
        setAttribute(scope, "title", row.scope ?? "");
        bar.set(row);
        setText(done, `${percent(row.progress)} %`);
        setText(count, number(row.jobs));
        setText(created, age(row.created_at));
        setAttribute(created, "title", date(row.created_at));
        setText(lasted, duration(between(row.started_at, row.finished_at)));
      },
    };
  }
}
