// Draws a pipeline's layout, and keeps the drawing up to date without drawing it anew.

import { percent, shares } from "./progress-bar.js";
import { h, setAttribute, setChildren, setText, svg } from "./dom.js";
import { layout } from "./layout.js";
import { setShape, shape, STATES } from "./states.js";
import { between, duration, number } from "./time.js";

const ROOM = 22; // letters of a scope that fit into a node
const EDGE = 18; // pixels around the drawing, for focus rings

export class Drawing {
  #open;
  #store;
  #shape = -1;
  #plan = null;
  #drawn = new Map();
  #edges = [];
  #focused = null;
  #lines = svg("svg", { "aria-hidden": "true", class: "edges" });
  #canvas = h("div", { class: "canvas" });

  /** `open(node)` is called for the node that the person chose. */
  constructor(store, open) {
    this.#store = store;
    this.#open = open;
    this.element = h(
      "div",
      { class: "graph", role: "group", "aria-label": "Graph of the jobs. Arrow keys go from one to the next." },
      this.#canvas,
    );
    this.element.addEventListener("keydown", (event) => this.#pressed(event));
  }

  get plan() {
    if (this.#shape !== this.#store.shape) {
      this.#plan = layout([...this.#store.jobs.values()]);
      this.#shape = this.#store.shape;
      this.#place();
    }
    return this.#plan;
  }

  draw(selected) {
    const plan = this.plan;
    for (const node of plan.nodes) {
      const drawn = this.#drawn.get(node.key);
      drawn.update(
        node,
        node.jobs.some((id) => id === selected),
      );
    }
    for (const { line, edge } of this.#edges) {
      const kind = this.#drawn.get(edge.from.key).done ? "done" : "open";
      setAttribute(line, "class", `edge ${kind}${edge.chained ? " chained" : ""}`);
    }
  }

  #place() {
    const { nodes, edges, width, height, size } = this.#plan;
    const before = this.#drawn;
    this.#drawn = new Map();
    for (const node of nodes) {
      const drawn = before.get(node.key) ?? this.#node(node.jobs.length > 1);
      drawn.node = node;
      drawn.element.style.height = `${size.height}px`;
      drawn.element.style.transform = `translate(${node.x + EDGE}px, ${node.y + EDGE}px)`;
      this.#drawn.set(node.key, drawn);
    }
    this.#canvas.style.width = `${width + 2 * EDGE}px`;
    this.#canvas.style.height = `${height + 2 * EDGE}px`;
    for (const side of ["width", "height"])
      this.#lines.setAttribute(side, (side === "width" ? width : height) + 2 * EDGE);
    this.#edges = edges.map((edge) => ({ edge, line: svg("path", { d: curve(edge, size) }) }));
    this.#lines.replaceChildren(...this.#edges.map(({ line }) => line));
    // In the order of the layers, which is the order in which Tab and screen readers meet them.
    const order = [...nodes]
      .sort((a, b) => a.column - b.column || a.row - b.row)
      .map((node) => this.#drawn.get(node.key).element);
    setChildren(this.#canvas, [this.#lines, ...order]);
    this.#rove(this.#drawn.has(this.#focused) ? this.#focused : nodes.length ? this.#first() : null);
  }

  #first() {
    return this.#plan.columns[0][0].key;
  }

  #rove(key) {
    this.#focused = key;
    for (const [other, { element }] of this.#drawn) element.tabIndex = other === key ? 0 : -1;
  }

  #node(many) {
    const icon = shape("pending");
    const name = h("span", { class: "name" });
    const facts = h("span", { class: "note" });
    const scope = h("span", { class: "note" });
    const bar = shares();
    const fill = h("span", { class: "fill" });
    const single = h("span", { class: "bar", "aria-hidden": "true" }, fill);
    const element = h(
      "button",
      { class: many ? "node many" : "node", type: "button" },
      icon,
      name,
      scope,
      facts,
      many ? bar.element : single,
    );
    const drawn = { element, done: false };
    element.addEventListener("click", () => {
      this.#rove(drawn.node.key);
      this.#open(drawn.node);
    });
    bar.element.setAttribute("aria-hidden", "true");
    drawn.update = (node, selected) => {
      const rows = node.jobs.map((id) => this.#store.jobs.get(id)).filter(Boolean);
      const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
      for (const row of rows) counts[row.state] += 1;
      const state = worst(counts);
      const words = many ? manyWords(counts) : oneWords(rows[0]);
      drawn.done = counts.completed + counts.partial === rows.length;
      setShape(icon, state);
      setText(name, `${many ? `${number(rows.length)} × ` : ""}${node.type ?? "(adopted row)"}`);
      setText(facts, words);
      setText(scope, scopes(rows));
      scope.hidden = !scope.textContent;
      setAttribute(element, "data-state", state);
      setAttribute(element, "aria-pressed", String(selected));
      setAttribute(
        element,
        "aria-label",
        `${node.type ?? "adopted row"}${many ? `, ${rows.length} jobs` : `, job ${rows[0].id}, ${state}`}, ${words}`,
      );
      setAttribute(element, "title", `${node.type ?? ""}\n${words}`);
      if (many) {
        bar.set(counts);
      } else {
        const progress = drawn.done ? 1 : rows[0].state === "running" ? (rows[0].progress ?? 0) : 0;
        fill.style.width = `${progress * 100}%`;
        fill.className = `fill is-${state}`;
      }
    };
    return drawn;
  }

  #pressed(event) {
    const { columns } = this.#plan;
    const node = this.#drawn.get(this.#focused)?.node;
    if (!node || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const [across, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const column = columns[Math.min(columns.length - 1, Math.max(0, node.column + across))];
    const row = across
      ? Math.round(((node.row + 0.5) / columns[node.column].length) * column.length - 0.5)
      : node.row + down;
    const next = column[Math.min(column.length - 1, Math.max(0, row))];
    this.#rove(next.key);
    this.#drawn.get(next.key).element.focus();
  }
}

/** Of many, what the first and the last have in common: they are often numbered or dated. */
function scopes(rows) {
  const first = rows[0].scope ?? "";
  const last = rows.at(-1).scope ?? "";
  let same = 0;
  while (same < first.length && first[same] === last[same]) same += 1;
  if (first !== last && !same) return "";
  const all = first === last ? first : `${first.slice(0, same)}…`;
  // The end of a scope tells jobs apart, so it is the beginning that is cut.
  return all.length > ROOM ? `…${all.slice(1 - ROOM)}` : all;
}

/** What a node of many shows: what needs somebody's attention comes first. */
function worst(counts) {
  for (const state of ["failed", "running", "partial", "pending", "waiting", "cancelled"])
    if (counts[state]) return state;
  return "completed";
}

function manyWords(counts) {
  const parts = [`${number(counts.completed)} done`];
  for (const state of ["failed", "partial", "running", "cancelled"])
    if (counts[state]) parts.push(`${number(counts[state])} ${state}`);
  return parts.join(", ");
}

function oneWords(row) {
  if (row.state === "running") {
    const progress =
      row.progress === null ? duration(between(row.started_at ?? row.locked_at)) : `${percent(row.progress)} %`;
    return `${progress} on ${row.locked_by ?? "?"}`;
  }
  if (row.state === "waiting") return `waits for ${row.waiting_on} ${row.waiting_on === 1 ? "job" : "jobs"}`;
  if (row.state === "pending") return row.attempts ? `again after attempt ${row.attempts}` : "in the queue";
  if (row.state === "cancelled") return "cancelled";
  return `${row.state} in ${duration(between(row.started_at ?? row.created_at, row.finished_at))}`;
}

function curve({ from, to }, size) {
  const [x1, y1] = [from.x + size.width + EDGE, from.y + size.height / 2 + EDGE];
  const [x2, y2] = [to.x + EDGE, to.y + size.height / 2 + EDGE];
  const bend = Math.max(24, (x2 - x1) / 2);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
