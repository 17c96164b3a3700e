// @ts-check
// Draws a pipeline's graph, and updates it in place.

import { h, setAttribute, setChildren, setText, svg } from "./dom.js";
import { layout } from "./layout.js";
import { percent, stateBar } from "./progress-bar.js";
import { countStates, setShape, shape } from "./states.js";
import { duration, number, secondsBetween } from "./time.js";

/** @import { Edge, GraphNode, JobState, Layout, Params, StateCounts, StoredJob } from "./types.js" */
/** @import { PipelineStore } from "./store.js" */

const MAX_SCOPE = 22; // characters of a scope that fit into a node
const MARGIN = 18; // pixels around the graph, for focus rings

/** @type {Record<string, [across: number, down: number]>} */
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

/** @type {Layout} */
const EMPTY = { nodes: [], edges: [], columns: [], width: 0, height: 0, nodeSize: { width: 0, height: 0 } };

/**
 * The element of a node.
 *
 * @typedef {object} DrawnNode
 * @property {HTMLButtonElement} element
 * @property {GraphNode} node
 * @property {boolean} isDone
 * @property {(isSelected: boolean) => void} update
 */

export class Graph {
  #store;
  #open;
  #layout = EMPTY;
  #layoutVersion = -1;
  /**
   * By the node's key.
   *
   * @type {Map<string, DrawnNode>}
   */
  #drawn = new Map();
  /** @type {{ edge: Edge, line: SVGPathElement }[]} */
  #edges = [];
  /**
   * The key of the node that Tab reaches.
   *
   * @type {string | null}
   */
  #tabStop = null;
  #lines = svg("svg", { "aria-hidden": "true", class: "edges" });
  #canvas = h("div", { class: "canvas" });
  #label = "Graph of the jobs. Use the arrow keys to move between them.";
  element = h("div", { class: "graph", role: "group", "aria-label": this.#label }, this.#canvas);

  /**
   * @param {PipelineStore} store
   * @param {(node: GraphNode) => void} open called with the node that the user chose
   */
  constructor(store, open) {
    this.#store = store;
    this.#open = open;
    this.element.addEventListener("keydown", (event) => this.#onKeydown(event));
  }

  close() {}

  get layout() {
    if (this.#layoutVersion !== this.#store.layoutVersion) {
      this.#layout = layout([...this.#store.jobs.values()]);
      this.#layoutVersion = this.#store.layoutVersion;
      this.#place();
    }
    return this.#layout;
  }

  /** @param {Params} params */
  draw(params) {
    const selected = params.job ? Number(params.job) : null;
    for (const node of this.layout.nodes) {
      this.#drawn.get(node.key)?.update(selected !== null && node.jobs.includes(selected));
    }
    for (const { line, edge } of this.#edges) {
      const kind = this.#drawn.get(edge.from.key)?.isDone ? "done" : "open";
      setAttribute(line, "class", `edge ${kind}${edge.chained ? " chained" : ""}`);
    }
  }

  #place() {
    const { nodes, edges, columns, width, height, nodeSize } = this.#layout;
    const previous = this.#drawn;
    this.#drawn = new Map();
    for (const node of nodes) {
      const drawn = previous.get(node.key) ?? this.#makeNode(node);
      drawn.node = node;
      drawn.element.style.height = `${nodeSize.height}px`;
      drawn.element.style.transform = `translate(${node.x + MARGIN}px, ${node.y + MARGIN}px)`;
      this.#drawn.set(node.key, drawn);
    }
    this.#canvas.style.width = `${width + 2 * MARGIN}px`;
    this.#canvas.style.height = `${height + 2 * MARGIN}px`;
    setAttribute(this.#lines, "width", width + 2 * MARGIN);
    setAttribute(this.#lines, "height", height + 2 * MARGIN);
    this.#edges = edges.map((edge) => ({ edge, line: svg("path", { d: curve(edge, nodeSize) }) }));
    this.#lines.replaceChildren(...this.#edges.map(({ line }) => line));
    // Column by column, which is the order for screen readers.
    const elements = columns.flat().flatMap((node) => this.#drawn.get(node.key)?.element ?? []);
    setChildren(this.#canvas, [this.#lines, ...elements]);
    const isStillThere = this.#tabStop !== null && this.#drawn.has(this.#tabStop);
    this.#setTabStop(isStillThere ? this.#tabStop : (columns[0]?.[0].key ?? null));
  }

  /** @param {string | null} key */
  #setTabStop(key) {
    this.#tabStop = key;
    for (const [other, { element }] of this.#drawn) element.tabIndex = other === key ? 0 : -1;
  }

  /**
   * @param {GraphNode} node
   * @returns {DrawnNode}
   */
  #makeNode(node) {
    const content = node.jobs.length > 1 ? foldedNode() : singleNode();
    const { element } = content;
    const drawn = {
      element,
      node,
      isDone: false,
      /** @param {boolean} isSelected */
      update: (isSelected) => {
        const rows = drawn.node.jobs.flatMap((id) => this.#store.jobs.get(id) ?? []);
        const counts = countStates(rows);
        drawn.isDone = counts.completed + counts.partial === rows.length;
        content.update(drawn.node.type, rows, counts);
        setAttribute(element, "aria-pressed", String(isSelected));
      },
    };
    element.addEventListener("click", () => {
      this.#setTabStop(drawn.node.key);
      this.#open(drawn.node);
    });
    return drawn;
  }

  /** @param {KeyboardEvent} event */
  #onKeydown(event) {
    const node = this.#tabStop === null ? null : this.#drawn.get(this.#tabStop)?.node;
    const arrow = ARROWS[event.key];
    if (!node || !arrow) return;
    event.preventDefault();
    const next = neighbour(this.#layout.columns, node, arrow);
    this.#setTabStop(next.key);
    this.#drawn.get(next.key)?.element.focus();
  }
}

/**
 * @param {GraphNode[][]} columns
 * @param {GraphNode} node
 * @param {[across: number, down: number]} arrow
 */
function neighbour(columns, node, [across, down]) {
  const column = columns[clamp(node.column + across, columns.length)];
  const share = (node.row + 0.5) / columns[node.column].length;
  const row = across ? Math.round(share * column.length - 0.5) : node.row + down;
  return column[clamp(row, column.length)];
}

/**
 * @param {number} index
 * @param {number} length
 */
const clamp = (index, length) => Math.min(length - 1, Math.max(0, index));

/**
 * The parts that every node has.
 *
 * @param {string} className
 * @param {HTMLElement} bar
 */
function nodeParts(className, bar) {
  const icon = shape("pending");
  const name = h("span", { class: "name" });
  const scope = h("span", { class: "note" });
  const facts = h("span", { class: "note" });
  const element = h("button", { class: className, type: "button" }, icon, name, scope, facts, bar);
  bar.setAttribute("aria-hidden", "true");
  return {
    element,
    /** @param {{ state: JobState, name: string, scope: string, facts: string, label: string, title: string }} texts */
    set(texts) {
      setShape(icon, texts.state);
      setAttribute(element, "data-state", texts.state);
      setText(name, texts.name);
      setText(scope, texts.scope);
      scope.hidden = !texts.scope;
      setText(facts, texts.facts);
      setAttribute(element, "aria-label", texts.label);
      setAttribute(element, "title", texts.title);
    },
  };
}

/** The node of one job. */
function singleNode() {
  const fill = h("span", { class: "fill" });
  const parts = nodeParts("node", h("span", { class: "bar" }, fill));
  return {
    element: parts.element,
    /**
     * @param {string | null} type
     * @param {StoredJob[]} rows
     */
    update(type, [job]) {
      const facts = jobFacts(job);
      parts.set({
        state: job.state,
        name: type ?? "(adopted row)",
        scope: commonScope([job]),
        facts,
        label: `${type ?? "adopted row"}, job ${job.id}, ${job.state}, ${facts}`,
        title: `${type ?? ""}\n${facts}`,
      });
      const isDone = job.state === "completed" || job.state === "partial";
      const progress = job.state === "running" ? (job.progress ?? 0) : 0;
      fill.style.width = `${isDone ? 100 : progress * 100}%`;
      fill.className = `fill is-${job.state}`;
    },
  };
}

/** The node of many jobs. */
function foldedNode() {
  const bar = stateBar();
  const parts = nodeParts("node folded", bar.element);
  return {
    element: parts.element,
    /**
     * @param {string | null} type
     * @param {StoredJob[]} rows
     * @param {StateCounts} counts
     */
    update(type, rows, counts) {
      const facts = countFacts(counts);
      parts.set({
        state: foldedState(counts),
        name: `${number(rows.length)} × ${type ?? "(adopted row)"}`,
        scope: commonScope(rows),
        facts,
        label: `${type ?? "adopted row"}, ${rows.length} jobs, ${facts}`,
        title: `${type ?? ""}\n${facts}`,
      });
      bar.set(counts);
    },
  };
}

/**
 * The scope of one job; of many, the beginning that the first and the last share: scopes are often numbered or dated.
 *
 * @param {StoredJob[]} rows
 */
function commonScope(rows) {
  const first = rows[0].scope ?? "";
  const last = rows.at(-1)?.scope ?? "";
  let shared = 0;
  while (shared < first.length && first[shared] === last[shared]) shared += 1;
  if (first !== last && !shared) return "";
  const scope = first === last ? first : `${first.slice(0, shared)}…`;
  // The end of a scope distinguishes jobs, so the beginning is cut off.
  return scope.length > MAX_SCOPE ? `…${scope.slice(1 - MAX_SCOPE)}` : scope;
}

/**
 * The state of a folded node: the one that needs attention most.
 *
 * @param {StateCounts} counts
 */
function foldedState(counts) {
  /** @type {JobState[]} */
  const order = ["failed", "running", "partial", "pending", "waiting", "cancelled"];
  return order.find((state) => counts[state]) ?? "completed";
}

/**
 * Failures first: a node may be too narrow for the rest.
 *
 * @param {StateCounts} counts
 */
function countFacts(counts) {
  /** @type {JobState[]} */
  const order = ["failed", "partial", "completed", "running", "cancelled"];
  const facts = order.filter((state) => counts[state]).map((state) => `${number(counts[state])} ${state}`);
  return facts.join(", ") || "0 completed";
}

/** @param {StoredJob} job */
function jobFacts(job) {
  if (job.state === "running") {
    const since = duration(secondsBetween(job.started_at ?? job.locked_at));
    return `${job.progress === null ? since : `${percent(job.progress)} %`} on ${job.locked_by ?? "?"}`;
  }
  if (job.state === "waiting") return `waiting for ${job.waiting_on} ${job.waiting_on === 1 ? "job" : "jobs"}`;
  if (job.state === "pending") return job.attempts ? `retry after attempt ${job.attempts}` : "queued";
  if (job.state === "cancelled") return "cancelled";
  return `${job.state} in ${duration(secondsBetween(job.started_at ?? job.created_at, job.finished_at))}`;
}

/**
 * @param {Edge} edge
 * @param {Layout["nodeSize"]} nodeSize
 */
function curve({ from, to }, nodeSize) {
  const [x1, y1] = [from.x + nodeSize.width + MARGIN, from.y + nodeSize.height / 2 + MARGIN];
  const [x2, y2] = [to.x + MARGIN, to.y + nodeSize.height / 2 + MARGIN];
  const bend = Math.max(24, (x2 - x1) / 2);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
