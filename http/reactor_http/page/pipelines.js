// @ts-check
// The list of pipelines, live, with the filters of the page's address.

import * as api from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { percent, stateBar } from "./progress-bar.js";
import { Redraw } from "./redraw.js";
import { hrefTo, navigate } from "./router.js";
import { badge } from "./states.js";
import { PipelinesStore } from "./store.js";
import { cell, table } from "./table.js";
import { age, date, duration, number, secondsBetween } from "./time.js";

/** @import { App, ListedPipeline, Params, PipelinePage, PipelinesEvent, Updatable } from "./types.js" */

const PAGE_SIZE = "100";
const TYPING_MS = 250; // after the last key, before the list changes
const RELOAD_MS = 3000;
/** "" is all of them. */
const STATES = ["", "running", "completed", "partial", "failed", "cancelled"];
/** @type {["job_type" | "scope" | "tag", string][]} */
const FIELDS = [
  ["job_type", "Type"],
  ["scope", "Scope"],
  ["tag", "Tag"],
];
/** @type {import("./table.js").Column[]} */
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
  /** @type {Params} */
  #params;
  #store = new PipelinesStore();
  /**
   * The ids of the pipelines that the server found for the filters.
   *
   * @type {Set<string>}
   */
  #matched = new Set();
  /**
   * The address of the next page of older ones.
   *
   * @type {string | null}
   */
  #next = null;
  /** Whether older pages were loaded. */
  #hasOlderPages = false;
  #isLoaded = false;
  /** Whether the stream has started over since the rows were loaded. */
  #isOutdated = false;
  /** @type {string | null} */
  #error = null;
  /** Grows when the filters change: responses to earlier ones are ignored. */
  #generation = 0;
  #loading = 0;
  #redraw;
  #stream;
  /** @type {number | undefined} */
  #typingTimer;
  /** @type {number | undefined} */
  #reloadTimer;
  #search = h("input", {
    type: "search",
    placeholder: "Search by id, type or scope",
    "aria-label": "Search by id, type or scope",
    input: () => this.#onInput(),
  });
  #chips = STATES.map((state) => {
    const click = () => navigate({ ...this.#params, state });
    return { state, chip: h("button", { class: "chip", type: "button", click }, state || "all") };
  });
  #fields = FIELDS.map(([name, label]) => {
    const input = h("input", { type: "text", name, autocomplete: "off", input: () => this.#onInput() });
    return { name, input, element: h("label", { class: "field" }, label, input) };
  });
  #moreFilters = h(
    "details",
    { class: "more-filters" },
    h("summary", {}, "More filters"),
    h("div", { class: "fields" }, ...this.#fields.map(({ element }) => element)),
  );
  #total = h("span", { class: "muted" });
  #table = table("pipelines", "Pipelines", COLUMNS, { key: (row) => row.pipeline_id, makeRow });
  #empty = h("div", { class: "empty" }, "Loading …");
  #older = h(
    "button",
    { class: "button", type: "button", hidden: true, click: () => this.#load(this.#next) },
    "Load older",
  );

  /**
   * @param {HTMLElement} root
   * @param {Params} params
   * @param {App} app
   */
  constructor(root, params, app) {
    this.#params = params;
    app.setTitle("Pipelines");
    const chips = this.#chips.map(({ chip }) => chip);
    const states = h("div", { class: "chips", role: "group", "aria-label": "State" }, chips);
    root.append(
      h("div", { class: "heading" }, h("h1", {}, "Pipelines"), this.#total),
      h("div", { class: "filters", role: "search" }, this.#search, states, this.#moreFilters),
      this.#table.element,
      this.#empty,
      this.#older,
    );
    this.#redraw = new Redraw(() => this.#draw());
    this.#stream = app.openPipelinesStream(
      (event) => this.#onEvent(event),
      (message) => {
        this.#error = message;
        this.#redraw.request();
      },
    );
    this.update(params);
  }

  /** @param {Params} params */
  update(params) {
    this.#params = params;
    if (document.activeElement !== this.#search) this.#search.value = params.q ?? "";
    for (const { name, input } of this.#fields) {
      if (document.activeElement !== input) input.value = params[name] ?? "";
      if (params[name]) this.#moreFilters.open = true;
    }
    for (const { state, chip } of this.#chips) {
      setAttribute(chip, "aria-pressed", String((params.state ?? "") === state));
    }
    this.#startOver();
  }

  close() {
    this.#stream.close();
    this.#redraw.close();
    this.#table.close();
    clearTimeout(this.#typingTimer);
    clearTimeout(this.#reloadTimer);
    this.#generation = -1;
  }

  /** @param {PipelinesEvent} event */
  #onEvent(event) {
    if (event.name === "reset" && this.#needsServer) {
      // The rows stay until the server has answered: under heavy load the stream resets every second.
      this.#isOutdated = true;
      if (!this.#loading) this.#load();
      return;
    }
    this.#store.apply(event);
    if (event.name === "reset") this.#startOver();
    // Events don't say whether a pipeline matches the filters, and a pipeline that leaves a state makes room for
    // others: ask the server, but not after each event.
    const isPart = this.#needsServer || (this.#params.state && this.#next);
    if (isPart && event.name === "pipeline") this.#scheduleReload();
    this.#redraw.request();
  }

  #onInput() {
    clearTimeout(this.#typingTimer);
    this.#typingTimer = setTimeout(() => {
      const fields = Object.fromEntries(this.#fields.map(({ name, input }) => [name, input.value.trim()]));
      navigate({ ...this.#params, ...fields, q: this.#search.value.trim() }, { replace: true });
    }, TYPING_MS);
  }

  /** The filters, as the API names them. */
  get #query() {
    const { state, q, job_type, scope, tag } = this.#params;
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ state, q, job_type, scope, tag })) if (value) query.set(name, value);
    return query;
  }

  /** Whether only the server can decide which pipelines match. */
  get #needsServer() {
    const { q, job_type, scope, tag } = this.#params;
    return Boolean(q || job_type || scope || tag);
  }

  #startOver() {
    this.#matched.clear();
    this.#hasOlderPages = false;
    this.#isOutdated = false;
    this.#generation += 1;
    this.#load();
  }

  #scheduleReload() {
    this.#reloadTimer ??= setTimeout(() => {
      this.#reloadTimer = undefined;
      this.#load();
    }, RELOAD_MS);
  }

  /** @param {string | null} [next] the address of a page of older ones */
  async #load(next = null) {
    const generation = this.#generation;
    const version = this.#store.version;
    const replaces = this.#isOutdated && !next;
    if (replaces) this.#isOutdated = false;
    this.#loading += 1;
    try {
      const page = await api.listPipelines(next ? new URL(next, location.href).search : this.#firstPage);
      if (generation !== this.#generation) return;
      if (replaces) this.#dropOthers(page);
      this.#add(page, version);
      // Older pages continue from where the user is, also when the newest page is loaded again.
      if (next || !this.#hasOlderPages) this.#next = page.next;
      this.#hasOlderPages ||= next !== null;
      if (this.#isOutdated) this.#scheduleReload();
    } catch (error) {
      if (generation !== this.#generation) return;
      this.#isOutdated ||= replaces;
      this.#error = api.describe(error);
      const isPermanent = error instanceof api.Refused && error.status < 500;
      if (!isPermanent) this.#scheduleReload();
    } finally {
      this.#loading -= 1;
    }
    this.#redraw.request();
  }

  get #firstPage() {
    const query = this.#query;
    query.set("limit", PAGE_SIZE);
    return `?${query}`;
  }

  /** @param {PipelinePage} page */
  #dropOthers(page) {
    this.#matched.clear();
    this.#hasOlderPages = false;
    this.#store.keepOnly(new Set(page.pipelines.map((row) => row.pipeline_id)));
  }

  /**
   * @param {PipelinePage} page
   * @param {number} version of the store when the page was requested
   */
  #add(page, version) {
    for (const row of page.pipelines) {
      this.#store.put(row, version);
      this.#matched.add(row.pipeline_id);
    }
    this.#error = null;
    this.#isLoaded = true;
  }

  /** @param {ListedPipeline} row */
  #matches(row) {
    if (this.#params.state && row.state !== this.#params.state) return false;
    return !this.#needsServer || this.#matched.has(row.pipeline_id);
  }

  #draw() {
    const rows = this.#store.sorted().filter((row) => this.#matches(row));
    this.#table.show(rows);
    this.#older.hidden = !this.#next;
    this.#empty.hidden = rows.length > 0;
    const running = rows.filter((row) => row.state === "running").length;
    setText(this.#total, rows.length ? `${number(rows.length)} shown, ${number(running)} running` : "");
    if (!rows.length) this.#drawEmpty();
  }

  #drawEmpty() {
    const isFiltered = this.#query.toString() !== "";
    if (this.#error) setText(this.#empty, this.#error);
    else if (!this.#isLoaded) setText(this.#empty, "Loading …");
    else if (isFiltered) {
      const link = h("a", { href: hrefTo({}), "data-view": true }, "Show all");
      this.#empty.replaceChildren("No pipelines match. ", link);
    } else setText(this.#empty, "No pipelines yet. Insert a row into reactor.jobs to start one.");
  }
}

/** @returns {Updatable<ListedPipeline>} */
function makeRow() {
  const state = badge("running");
  const link = h("a", { "data-view": true, class: "row-link" });
  const id = h("span", { class: "id" });
  const scope = cell("scope");
  const bar = stateBar();
  const done = h("span", { class: "percent" });
  const count = cell("count");
  const created = cell("age");
  const time = cell("duration");
  const element = h(
    "div",
    { role: "row", class: "row" },
    cell("state", state.element),
    cell("name", link, id),
    scope,
    cell("progress", bar.element, done),
    count,
    created,
    time,
  );
  return {
    element,
    update(row) {
      state.set(row.state);
      setText(link, row.job_type ?? "(adopted row)");
      setAttribute(link, "href", hrefTo({ pipeline: row.pipeline_id }));
      setText(id, row.pipeline_id.slice(0, 13));
      setAttribute(id, "title", row.pipeline_id);
      setText(scope, row.scope ?? "");
      setAttribute(scope, "title", row.scope ?? "");
      bar.set(row);
      setText(done, `${percent(row.progress)} %`);
      setText(count, number(row.jobs));
      setText(created, age(row.created_at));
      setAttribute(created, "title", date(row.created_at));
      setText(time, duration(secondsBetween(row.started_at, row.finished_at)));
    },
  };
}
