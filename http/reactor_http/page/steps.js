// The steps of a job: a grid where their names are `row/column` (days × models), else a list.

import { h, setAttribute, setText } from "./dom.js";
import { setShape, shape } from "./states.js";
import { between, duration, number } from "./time.js";

const AT_ONCE = 200; // rows drawn before somebody asks for more

/** {rows, columns, at: Map("row" -> Map("column" -> name))}, or null if the names are no grid. Pure. */
export function grid(names) {
  const at = new Map();
  const columns = new Set();
  for (const name of names) {
    const cut = name.lastIndexOf("/");
    if (cut < 1 || cut === name.length - 1) return null;
    const [row, column] = [name.slice(0, cut), name.slice(cut + 1)];
    columns.add(column);
    if (!at.has(row)) at.set(row, new Map());
    at.get(row).set(column, name);
  }
  // As a grid it would be mostly holes: a list tells more.
  if (!at.size || at.size * columns.size > names.length * 3 || columns.size > 60) return null;
  return { rows: [...at.keys()], columns: [...columns], at };
}

export class Steps {
  #names = "";
  #cells = new Map();
  #limit = AT_ONCE;
  #chosen = null;
  #steps = [];
  #summary = h("p", { class: "muted" });
  #place = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Steps" });
  #more = h("button", {
    class: "button small",
    type: "button",
    click: () => {
      this.#limit += 1000;
      this.#names = "";
      this.set(this.#steps);
    },
  });
  #detail = h("div", { class: "step-detail", "aria-live": "polite" });

  constructor() {
    this.element = h(
      "section",
      { class: "steps", hidden: true },
      h("h3", {}, "Steps"),
      this.#summary,
      this.#place,
      this.#more,
      this.#detail,
    );
    // One stop for Tab; arrows go on from there.
    this.#place.addEventListener("keydown", (event) => this.#pressed(event));
  }

  /** For another job. */
  reset() {
    this.#chosen = null;
    this.#limit = AT_ONCE;
    this.#detail.replaceChildren();
    delete this.#detail.dataset.facts;
  }

  set(steps) {
    this.#steps = steps;
    this.element.hidden = !steps.length;
    if (!steps.length) return;
    const counts = {};
    for (const { state } of steps) counts[state] = (counts[state] ?? 0) + 1;
    setText(
      this.#summary,
      `${number(counts.completed ?? 0)} of ${number(steps.length)} completed${["running", "failed", "skipped", "pending"].map((state) => (counts[state] ? `, ${number(counts[state])} ${state}` : "")).join("")}`,
    );
    const names = JSON.stringify(steps.map((step) => step.name));
    if (names !== this.#names) this.#build(steps, names);
    for (const step of steps) this.#update(step);
    const chosen = steps.find((step) => step.name === this.#chosen);
    if (chosen) this.#explain(chosen);
  }

  #build(steps, names) {
    this.#names = names;
    const focused = [...this.#cells].find(([, { button }]) => button === document.activeElement)?.[0];
    this.#cells.clear();
    const found = grid(steps.map((step) => step.name));
    const rows = found ? found.rows.length : steps.length;
    this.#more.hidden = rows <= this.#limit;
    if (!this.#more.hidden) setText(this.#more, `Show more (${number(rows - this.#limit)} further rows)`);
    this.#place.replaceChildren(found ? this.#grid(found) : this.#list(steps));
    // Steps that come while somebody goes through them with the keyboard must not send them back to the beginning.
    this.#cells.get(focused)?.button.focus({ preventScroll: true });
  }

  #grid({ rows, columns, at }) {
    const head = h(
      "tr",
      {},
      h("td", {}),
      columns.map((name) => h("th", { scope: "col", title: name }, h("span", {}, name))),
    );
    const body = rows.slice(0, this.#limit).map((row) =>
      h(
        "tr",
        {},
        h("th", { scope: "row", title: row }, h("span", {}, row)),
        columns.map((column) => {
          const name = at.get(row).get(column);
          return h("td", {}, name === undefined ? null : this.#cell(name, false));
        }),
      ),
    );
    return h(
      "table",
      { class: columns.length > 6 ? "grid narrow" : "grid" },
      h("thead", {}, head),
      h("tbody", {}, body),
    );
  }

  #list(steps) {
    return h(
      "ul",
      { class: "plain-list" },
      steps.slice(0, this.#limit).map((step) => h("li", {}, this.#cell(step.name, true))),
    );
  }

  #cell(name, withName) {
    const icon = shape("pending");
    const time = h("span", { class: "muted" });
    const words = h("span", { class: "words" }, name);
    const button = h(
      "button",
      { class: withName ? "step wide" : "step", type: "button", tabindex: -1, click: () => this.#choose(name) },
      icon,
      withName ? [words, time] : null,
    );
    this.#cells.set(name, { button, icon, time, withName });
    return button;
  }

  #update(step) {
    const cell = this.#cells.get(step.name);
    if (!cell) return;
    setShape(cell.icon, step.state);
    const lasted =
      step.started_at && step.state !== "pending" ? duration(between(step.started_at, step.finished_at)) : "";
    setAttribute(cell.button, "aria-label", `${step.name}: ${step.state}${lasted ? `, ${lasted}` : ""}`);
    setAttribute(
      cell.button,
      "title",
      `${step.name}: ${step.state}${lasted ? `, ${lasted}` : ""}${step.error ? `\n${step.error.slice(0, 200)}` : ""}`,
    );
    if (cell.withName) setText(cell.time, lasted);
  }

  #choose(name) {
    this.#chosen = name;
    this.#explain(this.#steps.find((step) => step.name === name));
  }

  #explain(step) {
    const facts = JSON.stringify(step);
    if (this.#detail.dataset.facts === facts) return;
    this.#detail.dataset.facts = facts;
    const lasted = step.started_at ? ` in ${duration(between(step.started_at, step.finished_at))}` : "";
    this.#detail.replaceChildren(
      h("p", {}, shape(step.state), " ", h("b", {}, step.name), ` ${step.state}${step.finished_at ? lasted : ""}`),
    );
    if (step.error) this.#detail.append(h("pre", { class: "error", tabindex: 0 }, step.error));
  }

  #pressed(event) {
    if (!event.key.startsWith("Arrow")) return;
    const all = [...this.#cells.values()].map(({ button }) => button);
    if (!all.length) return;
    event.preventDefault();
    const width = this.#place.querySelector("thead tr")?.children.length - 1 || 1;
    const here = all.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: width, ArrowUp: -width }[event.key];
    all[here < 0 ? 0 : Math.min(all.length - 1, Math.max(0, here + step))].focus();
  }
}
