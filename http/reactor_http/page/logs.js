// @ts-check
// What a job's handlers logged: the newest lines, loaded again while the job runs, and older ones on demand.

import * as api from "./api.js";
import { h, setText, svg } from "./dom.js";
import { date, time } from "./time.js";

/** @import { LogLevel, LogLine, LogPage, StoredJob } from "./types.js" */

const RELOAD_MS = 2000;
const PAGE = 200;
const MAX_LINES = 1000; // then the oldest ones are dropped, unless older ones were asked for
const MAX_LOADED = 5000;
const AT_END_PX = 24;

const TRIANGLE = "M8 1.500l7 13H1z";
const OCTAGON = "M5 1h6l4 4v6l-4 4H5l-4-4V5z";
/** @type {Record<LogLevel, () => SVGElement>} */
const SHAPES = {
  debug: () => svg("circle", { cx: 8, cy: 8, r: 2.5, fill: "currentColor" }),
  info: () => svg("circle", { cx: 8, cy: 8, r: 5, fill: "none", stroke: "currentColor", "stroke-width": 2 }),
  warning: () => svg("path", { d: TRIANGLE, fill: "currentColor" }),
  error: () => svg("path", { d: OCTAGON, fill: "currentColor" }),
  critical: () => svg("path", { d: "M8 0l8 8-8 8-8-8z", fill: "currentColor" }),
};

export class Logs {
  /** @type {number | null} */
  #id = null;
  /** Of the job when the lines were loaded last: a job that is retried logs again. */
  #loadedFor = "";
  /** @type {string | null} */
  #step = null;
  /** The id after which lines are still to be loaded; null: none were loaded yet. */
  /** @type {number | null} */
  #after = null;
  /** @type {LogLine[]} */
  #lines = [];
  #hasOlder = false;
  #maxLines = MAX_LINES;
  #loads = 0;
  /** @type {number | undefined} */
  #timer;
  #of = h("span", { class: "muted" });
  #all = h(
    "button",
    { class: "button small", type: "button", hidden: true, click: () => this.setStep(null) },
    "All steps",
  );
  #level = h(
    "select",
    { "aria-label": "Lowest level", change: () => this.#restart() },
    h("option", { value: "" }, "all levels"),
    h("option", { value: "info" }, "info and above"),
    h("option", { value: "warning" }, "warning and above"),
    h("option", { value: "error" }, "error and above"),
  );
  #older = h(
    "button",
    { class: "button small", type: "button", hidden: true, click: () => this.#loadOlder() },
    "Older lines",
  );
  #list = h("ol", { class: "plain-list" });
  #scroll = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Log lines" }, this.#list);
  #note = h("p", { class: "muted", hidden: true });
  element = h(
    "section",
    { class: "logs", hidden: true },
    h("div", { class: "logs-head" }, h("h3", {}, "Log"), this.#of, this.#all, this.#level),
    this.#older,
    this.#scroll,
    this.#note,
  );

  /** Call it before another job is shown. */
  reset() {
    clearTimeout(this.#timer);
    this.#loads += 1;
    this.#id = null;
    this.#step = null;
    this.#level.value = "";
    this.#loadedFor = "";
    this.element.hidden = true;
    this.#forgetLines();
  }

  /** @param {StoredJob} job */
  set(job) {
    const version = `${job.id} ${job.attempts} ${job.state}`;
    if (version === this.#loadedFor) return;
    this.#loadedFor = version;
    this.#id = job.id;
    this.#load();
  }

  /**
   * Shows only the lines of this step.
   *
   * @param {string | null} step
   */
  setStep(step) {
    if (step === this.#step) return;
    this.#step = step;
    this.#restart();
  }

  get #isFiltered() {
    return this.#step !== null || this.#level.value !== "";
  }

  #restart() {
    this.#forgetLines();
    this.#load();
  }

  #forgetLines() {
    this.#after = null;
    this.#lines = [];
    this.#hasOlder = false;
    this.#maxLines = MAX_LINES;
    this.#list.replaceChildren();
  }

  async #load() {
    clearTimeout(this.#timer);
    const page = await this.#fetch(this.#after === null ? {} : { after: this.#after });
    if (!page) return;
    const isFirst = this.#after === null;
    this.#after = page.after;
    if (isFirst) this.#hasOlder = page.previous !== null;
    this.#append(page.lines);
    if (page.next && !isFirst) this.#load();
    else if (page.job_state === "running") this.#loadLater();
  }

  #loadLater() {
    this.#timer = setTimeout(() => (document.hidden ? this.#loadLater() : this.#load()), RELOAD_MS);
  }

  async #loadOlder() {
    const page = await this.#fetch({ before: this.#lines[0]?.id });
    if (!page) return;
    this.#maxLines = Math.min(this.#maxLines + page.lines.length, MAX_LOADED);
    this.#hasOlder = page.previous !== null;
    // What the reader looks at stays where it is.
    const fromEnd = this.#scroll.scrollHeight - this.#scroll.scrollTop;
    this.#lines = [...page.lines, ...this.#lines];
    this.#draw();
    this.#scroll.scrollTop = this.#scroll.scrollHeight - fromEnd;
    this.#loadLater();
  }

  /**
   * A page, or null if another one was asked for meanwhile, or none could be loaded.
   *
   * @param {{ after?: number, before?: number }} place
   * @returns {Promise<LogPage | null>}
   */
  async #fetch(place) {
    const id = this.#id;
    if (id === null) return null;
    clearTimeout(this.#timer);
    this.#loads += 1;
    const load = this.#loads;
    try {
      const page = await api.getLogs(id, { ...place, step: this.#step, level: this.#level.value, limit: PAGE });
      return load === this.#loads ? page : null;
    } catch (error) {
      if (load !== this.#loads) return null;
      this.#drawHead(api.describe(error));
      this.#loadLater();
      return null;
    }
  }

  /** @param {LogLine[]} lines */
  #append(lines) {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroll;
    const isAtEnd = scrollHeight - scrollTop - clientHeight <= AT_END_PX;
    const maxLines = isAtEnd ? this.#maxLines : MAX_LOADED;
    if (this.#lines.length + lines.length > maxLines) {
      this.#lines = [...this.#lines, ...lines].slice(-maxLines);
      this.#hasOlder = true;
      this.#draw();
    } else {
      let before = this.#lines.at(-1)?.attempt_id;
      for (const line of lines) {
        this.#list.append(...lineElements(line, before));
        before = line.attempt_id;
      }
      this.#lines.push(...lines);
    }
    this.#drawHead();
    if (isAtEnd && lines.length) this.#scroll.scrollTop = this.#scroll.scrollHeight;
  }

  #draw() {
    const elements = this.#lines.flatMap((line, index) => lineElements(line, this.#lines[index - 1]?.attempt_id));
    this.#list.replaceChildren(...elements);
    this.#drawHead();
  }

  /** @param {string} [problem] */
  #drawHead(problem) {
    this.element.hidden = !this.#lines.length && !this.#isFiltered && !problem;
    const isFull = this.#lines.length >= MAX_LOADED;
    this.#older.hidden = !this.#hasOlder || isFull;
    setText(this.#of, this.#step === null ? "" : `of ${this.#step}`);
    this.#all.hidden = this.#step === null;
    const empty = this.#lines.length ? "" : "No such lines are stored.";
    const more = this.#hasOlder && isFull ? `reactor logs ${this.#id} prints all lines.` : "";
    setText(this.#note, problem ?? (empty || more));
    this.#note.hidden = !this.#note.textContent;
    this.#scroll.hidden = !this.#lines.length;
  }
}

/**
 * @param {LogLine} line
 * @param {string} [before] the attempt of the line before
 */
function lineElements(line, before) {
  const { exception, ...fields } = line.fields ?? {};
  const values = Object.entries(fields).map(([name, value]) => `${name}=${show(value)}`);
  const element = h(
    "li",
    { class: `log-line is-${line.level}` },
    h("time", { datetime: line.at, title: date(line.at) }, time(line.at)),
    levelShape(line.level),
    h(
      "span",
      { class: "log-text" },
      line.step !== null && h("span", { class: "log-step" }, line.step),
      line.message,
      values.length > 0 && h("span", { class: "muted" }, ` ${values.join(" ")}`),
      exception !== undefined && h("pre", { class: "error", tabindex: 0 }, show(exception)),
    ),
  );
  if (line.attempt_id === before) return [element];
  return [h("li", { class: "log-attempt" }, `Attempt ${line.attempt}`), element];
}

/** @param {unknown} value */
const show = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** @param {LogLevel} level */
function levelShape(level) {
  const name = { role: "img", "aria-label": level };
  return svg("svg", { class: "shape", viewBox: "0 0 16 16", width: 12, height: 12, ...name }, SHAPES[level]());
}
