// @ts-check
// Lays a pipeline out in layers: rows in, positions out. graph.js draws them.
//
// A job's layer is the length of the longest path to it from a job without predecessors. Many jobs that are alike (same
// type, same layer, predecessors and successors that are alike in turn) are folded into one node, so that 10,000 jobs
// are a few nodes.

/** @import { Edge, GraphNode, Layout } from "./types.js" */

const NODE = { width: 208, height: 60, heightWithScope: 76 };
const GAP = { across: 44, down: 14 };
const ROUNDS = 6; // of comparing neighbours: how far jobs have to be alike around them
const SWEEPS = 4;

/**
 * The columns of a job that determine the layout.
 *
 * @typedef {object} Row
 * @property {number} id
 * @property {string | null} job_type
 * @property {string | null} [scope]
 * @property {number | null} parent_id
 * @property {number[]} depends_on
 */

/**
 * The jobs as a graph, all by job id.
 *
 * @typedef {object} JobGraph
 * @property {Map<number, Row>} rows
 * @property {Map<number, number[]>} predecessors
 * @property {Map<number, number[]>} successors
 * @property {Map<number, number>} layer
 */

/**
 * @param {Row[]} jobs
 * @param {{ foldAbove?: number, maxNodes?: number }} [options]
 * @returns {Layout}
 */
export function layout(jobs, { foldAbove = 12, maxNodes = 300 } = {}) {
  const graph = connect(jobs);
  const nodes = group(graph, foldAbove, maxNodes);
  /** @type {Map<number, GraphNode>} */
  const nodeOf = new Map();
  for (const node of nodes) for (const id of node.jobs) nodeOf.set(id, node);
  const edges = join(graph, nodeOf);
  // Scopes distinguish jobs of one type; without scopes their line is not needed.
  const height = jobs.some((job) => job.scope) ? NODE.heightWithScope : NODE.height;
  return { nodes, edges, nodeSize: { width: NODE.width, height }, ...place(nodes, edges, height) };
}

/**
 * The value of a key that is always there.
 *
 * @template Key, Value
 * @param {Map<Key, Value>} map
 * @param {Key} key
 */
const of = (map, key) => /** @type {Value} */ (map.get(key));

/**
 * @template Key, Item
 * @param {Map<Key, Item[]>} map
 * @param {Key} key
 * @param {Item} item
 */
function append(map, key, item) {
  const items = map.get(key);
  if (items) items.push(item);
  else map.set(key, [item]);
}

/**
 * @param {Row[]} jobs
 * @returns {JobGraph}
 */
function connect(jobs) {
  const rows = new Map(jobs.map((job) => [job.id, job]));
  /** @type {Map<number, number[]>} */
  const predecessors = new Map();
  /** @type {Map<number, number[]>} */
  const successors = new Map(jobs.map((job) => [job.id, []]));
  for (const job of jobs) {
    const found = new Set(job.depends_on.filter((id) => rows.has(id)));
    if (job.parent_id !== null && rows.has(job.parent_id)) found.add(job.parent_id);
    predecessors.set(job.id, [...found]);
    for (const id of found) append(successors, id, job.id);
  }
  return { rows, predecessors, successors, layer: layers(predecessors, successors) };
}

/**
 * @param {Map<number, number[]>} predecessors
 * @param {Map<number, number[]>} successors
 */
function layers(predecessors, successors) {
  /** @type {Map<number, number>} */
  const layer = new Map();
  const unplaced = new Map([...predecessors].map(([id, all]) => [id, all.length]));
  const ready = [...predecessors.keys()].filter((id) => !unplaced.get(id));
  for (const id of ready) layer.set(id, 0);
  // The list grows while it is read.
  for (const done of ready) {
    for (const id of of(successors, done)) {
      layer.set(id, Math.max(layer.get(id) ?? 0, of(layer, done) + 1));
      unplaced.set(id, of(unplaced, id) - 1);
      if (!unplaced.get(id)) ready.push(id);
    }
  }
  return layer;
}

/**
 * The nodes: as few jobs folded as `maxNodes` allows.
 *
 * @param {JobGraph} graph
 * @param {number} foldAbove
 * @param {number} maxNodes
 */
function group(graph, foldAbove, maxNodes) {
  /** @param {number} layersPerBand */
  const label = (layersPerBand) => /** @param {number} id */ (id) =>
    `${Math.floor(of(graph.layer, id) / layersPerBand)} ${of(graph.rows, id).job_type ?? ""}`;
  const alike = classes(graph, label(1), ROUNDS);
  for (const limit of [foldAbove, 1]) {
    const nodes = toNodes(graph, alike, limit);
    if (nodes.length <= maxNodes) return nodes;
  }
  let nodes = toNodes(graph, classes(graph, label(1), 0), 1);
  // In a chain of thousands, neighbouring layers share a node.
  for (let band = 2; nodes.length > maxNodes; band *= 2) {
    nodes = toNodes(graph, classes(graph, label(band), 0), 1, band);
    if (band > graph.rows.size) break;
  }
  return nodes;
}

/**
 * The class of each job. Jobs of one class have the same label and, after each round, neighbours of the same classes.
 *
 * @param {JobGraph} graph
 * @param {(id: number) => string} label
 * @param {number} rounds
 * @returns {Map<number, number>}
 */
function classes({ rows, predecessors, successors }, label, rounds) {
  const ids = [...rows.keys()];
  let current = toNumbers(ids, label);
  for (let round = 0; round < rounds; round += 1) {
    const classOf = current.classOf;
    /** @param {number[]} neighbours */
    const classesOf = (neighbours) =>
      [...new Set(neighbours.map((id) => of(classOf, id)))].sort((a, b) => a - b).join(",");
    const next = toNumbers(
      ids,
      (id) => `${classOf.get(id)}|${classesOf(of(predecessors, id))}|${classesOf(of(successors, id))}`,
    );
    const isStable = next.count === current.count;
    current = next;
    if (isStable) break;
  }
  return current.classOf;
}

/**
 * Equal labels get equal numbers.
 *
 * @param {number[]} ids
 * @param {(id: number) => string} label
 */
function toNumbers(ids, label) {
  /** @type {Map<string, number>} */
  const numbers = new Map();
  /** @type {Map<number, number>} */
  const classOf = new Map();
  for (const id of ids) {
    const text = label(id);
    const number = numbers.get(text) ?? numbers.size;
    numbers.set(text, number);
    classOf.set(id, number);
  }
  return { classOf, count: numbers.size };
}

/**
 * @param {JobGraph} graph
 * @param {Map<number, number>} classOf
 * @param {number} limit classes with more jobs than this become one node
 * @param {number} [layersPerBand]
 */
function toNodes({ rows, layer }, classOf, limit, layersPerBand = 1) {
  /** @type {Map<number, number[]>} */
  const members = new Map();
  for (const [id, number] of classOf) append(members, number, id);
  /** @type {GraphNode[]} */
  const nodes = [];
  for (const ids of members.values()) {
    const at = Math.floor(of(layer, ids[0]) / layersPerBand);
    /**
     * @param {number[]} jobs
     * @param {string} key
     */
    const add = (jobs, key) => {
      const position = { row: 0, column: 0, x: 0, y: 0 };
      nodes.push({ key, type: of(rows, jobs[0]).job_type, jobs, layer: at, order: jobs[0], ...position });
    };
    if (ids.length > limit) add(ids, `group-${at}-${ids[0]}`);
    else for (const id of ids) add([id], `job-${id}`);
  }
  return nodes;
}

/**
 * @param {JobGraph} graph
 * @param {Map<number, GraphNode>} nodeOf
 * @returns {Edge[]}
 */
function join({ predecessors, rows }, nodeOf) {
  /** @type {Map<string, Edge>} */
  const edges = new Map();
  for (const [id, all] of predecessors) {
    for (const other of all) {
      const from = of(nodeOf, other);
      const to = of(nodeOf, id);
      if (from === to) continue;
      const row = of(rows, id);
      const chained = other === row.parent_id && !row.depends_on.includes(other);
      const key = `${from.key} ${to.key}`;
      const known = edges.get(key);
      edges.set(key, { from, to, chained: chained && (known?.chained ?? true) });
    }
  }
  return [...edges.values()];
}

/**
 * Gives each node its position.
 *
 * @param {GraphNode[]} nodes
 * @param {Edge[]} edges
 * @param {number} nodeHeight
 */
function place(nodes, edges, nodeHeight) {
  const columns = toColumns(nodes);
  orderRows(columns, edges);
  const tallest = Math.max(1, ...columns.map((column) => column.length));
  for (const column of columns) {
    const free = ((tallest - column.length) * (nodeHeight + GAP.down)) / 2;
    for (const node of column) {
      node.x = node.column * (NODE.width + GAP.across);
      node.y = free + node.row * (nodeHeight + GAP.down);
    }
  }
  return {
    columns,
    width: columns.length * (NODE.width + GAP.across) - GAP.across,
    height: tallest * (nodeHeight + GAP.down) - GAP.down,
  };
}

/** @param {GraphNode[]} nodes */
function toColumns(nodes) {
  /** @type {GraphNode[][]} */
  const byLayer = [];
  for (const node of nodes) (byLayer[node.layer] ??= []).push(node);
  const columns = byLayer.filter(Boolean);
  columns.forEach((column, index) => {
    for (const node of column) node.column = index;
  });
  return columns;
}

/**
 * Moves each node near the middle of its neighbours, so that fewer edges cross.
 *
 * @param {GraphNode[][]} columns
 * @param {Edge[]} edges
 */
function orderRows(columns, edges) {
  /** @type {Map<GraphNode, GraphNode[]>} */
  const before = new Map();
  /** @type {Map<GraphNode, GraphNode[]>} */
  const after = new Map();
  for (const { from, to } of edges) {
    append(before, to, from);
    append(after, from, to);
  }
  /**
   * A node's place in its column from 0 to 1, so that columns of different lengths compare.
   *
   * @param {GraphNode} node
   */
  const place = (node) => (node.row + 0.5) / columns[node.column].length;
  for (const column of columns) sortRows(column, () => 0);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isBackward = sweep % 2 === 1;
    const neighbours = isBackward ? after : before;
    for (const column of isBackward ? [...columns].reverse() : columns) {
      const middle = new Map(column.map((node) => [node, mean((neighbours.get(node) ?? [node]).map(place))]));
      sortRows(column, (node) => of(middle, node));
    }
  }
}

/**
 * @param {GraphNode[]} column
 * @param {(node: GraphNode) => number} rank
 */
function sortRows(column, rank) {
  column.sort((a, b) => rank(a) - rank(b) || a.order - b.order);
  column.forEach((node, index) => {
    node.row = index;
  });
}

/** @param {number[]} values */
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
