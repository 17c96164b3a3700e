// @ts-check
// The steps of a job: a grid if their names are `row/column` (days × models), else a list.

import { h, setAttribute, setText } from "./dom.js";
import { setShape, shape } from "./states.js";
import { clock, duration, number, secondsBetween, toMs } from "./time.js";

/** @import { Step, StepState } from "./types.js" */

const INITIAL_ROWS = 200;
const MORE_ROWS = 1000;
const MAX_COLUMNS = 60;
const NARROW_ABOVE = 6; // columns: then their headings are vertical

/** @type {StepState[]} */
const SUMMARY_ORDER = ["running", "failed", "skipped", "pending"];

/** @typedef {{ rows: string[], columns: string[], names: Map<string, Map<string, string>> }} Grid */

/**
 * The grid that the names form, or null if they form none. `names`: by row and column.
 *
 * @param {string[]} stepNames
 * @returns {Grid | null}
 */
export function grid(stepNames) {
  /** @type {Grid["names"]} */
  const names = new Map();
  const columns = new Set();
  for (const name of stepNames) {
    const slash = name.lastIndexOf("/");
    if (slash < 1 || slash === name.length - 1) return null;
    const row = name.slice(0, slash);
    const column = name.slice(slash + 1);
    columns.add(column);
    const cells = names.get(row) ?? new Map();
    names.set(row, cells.set(column, name));
  }
  // A grid that would be mostly empty is clearer as a list.
  const cellCount = names.size * columns.size;
  if (!names.size || cellCount > stepNames.length * 3 || columns.size > MAX_COLUMNS) return null;
  return { rows: [...names.keys()], columns: [...columns], names };
}

/** @typedef {{ button: HTMLButtonElement, icon: SVGSVGElement, time: HTMLElement | null }} Cell */

export class Steps {
  /** @type {Step[]} */
  #steps = [];
  /** The names that the cells were built for, as JSON. */
  #builtNames = "";
  /**
   * By step name.
   *
   * @type {Map<string, Cell>}
   */
  #cells = new Map();
  #maxRows = INITIAL_ROWS;
  /** @type {string | null} */
  #selected = null;
  #summary = h("p", { class: "muted" });
  #content = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Steps" });
  #more = h("button", { class: "button small", type: "button", click: () => this.#showMore() });
  #detail = h("div", { class: "step-detail", "aria-live": "polite" });
  element = h(
    "section",
    { class: "steps", hidden: true },
    h("h3", {}, "Steps"),
    this.#summary,
    this.#content,
    this.#more,
    this.#detail,
  );

  #onSelect;

  /** @param {(name: string) => void} onSelect */
  constructor(onSelect) {
    this.#onSelect = onSelect;
    // One tab stop for all steps; the arrow keys move between them.
    this.#content.addEventListener("keydown", (event) => this.#onKeydown(event));
  }

  /** Call it before the steps of another job are shown. */
  reset() {
    this.#selected = null;
    this.#maxRows = INITIAL_ROWS;
    this.#detail.replaceChildren();
    delete this.#detail.dataset.facts;
  }

  /** @param {Step[]} steps */
  set(steps) {
    this.#steps = steps;
    this.element.hidden = !steps.length;
    if (!steps.length) return;
    setText(this.#summary, summary(steps));
    const names = JSON.stringify(steps.map((step) => step.name));
    if (names !== this.#builtNames) this.#build(names);
    for (const step of steps) this.#update(step);
    this.#showDetail();
  }

  #showMore() {
    this.#maxRows += MORE_ROWS;
    this.#builtNames = "";
    this.set(this.#steps);
  }

  /** @param {string} names */
  #build(names) {
    this.#builtNames = names;
    const focused = [...this.#cells].find(([, { button }]) => button === document.activeElement)?.[0];
    this.#cells.clear();
    const found = grid(this.#steps.map((step) => step.name));
    const rows = found ? found.rows.length : this.#steps.length;
    this.#more.hidden = rows <= this.#maxRows;
    setText(this.#more, `Show more (${number(rows - this.#maxRows)} rows)`);
    this.#content.replaceChildren(found ? this.#makeGrid(found) : this.#makeList());
    // New steps must not move the keyboard focus.
    if (focused !== undefined) this.#cells.get(focused)?.button.focus({ preventScroll: true });
  }

  /** @param {Grid} grid */
  #makeGrid({ rows, columns, names }) {
    const headings = columns.map((name) => h("th", { scope: "col", title: name }, h("span", {}, name)));
    const body = rows.slice(0, this.#maxRows).map((row) => {
      const cells = columns.map((column) => {
        const name = names.get(row)?.get(column);
        return h("td", {}, name === undefined ? null : this.#makeCell(name, false));
      });
      return h("tr", {}, h("th", { scope: "row", title: row }, h("span", {}, row)), cells);
    });
    const head = h("thead", {}, h("tr", {}, h("td", {}), headings));
    return h("table", { class: columns.length > NARROW_ABOVE ? "grid narrow" : "grid" }, head, h("tbody", {}, body));
  }

  #makeList() {
    const steps = this.#steps.slice(0, this.#maxRows);
    return h("ul", { class: "plain-list" }, ...steps.map((step) => h("li", {}, this.#makeCell(step.name, true))));
  }

  /**
   * @param {string} name
   * @param {boolean} withName
   */
  #makeCell(name, withName) {
    const icon = shape("pending");
    const time = withName ? h("span", { class: "muted" }) : null;
    const button = h(
      "button",
      { class: withName ? "step wide" : "step", type: "button", tabindex: -1, click: () => this.#select(name) },
      icon,
      withName && h("span", { class: "text" }, name),
      time,
    );
    this.#cells.set(name, { button, icon, time });
    return button;
  }

  /** @param {Step} step */
  #update(step) {
    const cell = this.#cells.get(step.name);
    if (!cell) return;
    setShape(cell.icon, step.state);
    const facts = [ranFor(step), runs(step)].filter(Boolean).join(", ");
    const label = `${step.name}: ${step.state}${facts ? `, ${facts}` : ""}`;
    setAttribute(cell.button, "aria-label", label);
    setAttribute(cell.button, "title", `${label}${step.error ? `\n${step.error.slice(0, 200)}` : ""}`);
    if (cell.time) setText(cell.time, facts);
  }

  /** @param {string} name */
  #select(name) {
    this.#selected = name;
    this.#showDetail();
    this.#onSelect(name);
  }

  #showDetail() {
    const step = this.#steps.find(({ name }) => name === this.#selected);
    const facts = JSON.stringify(step);
    if (!step || this.#detail.dataset.facts === facts) return;
    this.#detail.dataset.facts = facts;
    const time = step.finished_at && ranFor(step);
    const words = [`${step.state}${time ? ` in ${time}` : ""}`, runs(step)].filter(Boolean).join(", ");
    this.#detail.replaceChildren(h("p", {}, shape(step.state), " ", h("b", {}, step.name), ` ${words}`));
    if (step.error) this.#detail.append(h("pre", { class: "error", tabindex: 0 }, step.error));
  }

  /** @param {KeyboardEvent} event */
  #onKeydown(event) {
    const columns = Math.max(1, (this.#content.querySelector("thead tr")?.children.length ?? 0) - 1);
    /** @type {Record<string, number>} */
    const keySteps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const step = keySteps[event.key];
    const buttons = [...this.#cells.values()].map(({ button }) => button);
    if (!step || !buttons.length) return;
    event.preventDefault();
    const current = buttons.findIndex((button) => button === document.activeElement);
    buttons[current < 0 ? 0 : Math.min(buttons.length - 1, Math.max(0, current + step))].focus();
  }
}

/**
 * How long its runs took together; of one that runs, its newest run.
 *
 * @param {Step} step
 */
function ranFor({ state, ran, started_at }) {
  if (state === "running") return duration(secondsBetween(started_at));
  return ran === null || state === "pending" ? "" : duration(ran);
}

/**
 * Of a step that runs several times.
 *
 * @param {Step} step
 */
function runs({ state, attempts, max_attempts, run_after }) {
  if (state === "pending" && run_after) {
    return `run ${number(attempts + 1)} of ${number(max_attempts ?? 1)} at ${clock(toMs(run_after))}`;
  }
  if (state === "running") return attempts ? `run ${number(attempts + 1)} of ${number(max_attempts ?? 1)}` : "";
  return attempts > 1 ? `${number(attempts)} runs` : "";
}

/** @param {Step[]} steps */
function summary(steps) {
  /** @param {StepState} state */
  const count = (state) => steps.filter((step) => step.state === state).length;
  const others = SUMMARY_ORDER.filter(count).map((state) => `, ${number(count(state))} ${state}`);
  return `${number(count("completed"))} of ${number(steps.length)} completed${others.join("")}`;
}
