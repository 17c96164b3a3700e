// Lays a pipeline out in layers. Pure: rows in, places out; graph.js draws them.
//
// A layer is the longest way from a job without predecessors. Jobs that look alike (same type, same layer, predecessors
// and successors that look alike in turn) are folded into one node when they are many, so that 10,000 jobs are a few nodes.

export const SIZE = { width: 208, height: 60, tall: 76, across: 44, down: 14 };

/** {nodes: [{key, type, jobs, layer, x, y}], edges: [{from, to, chained}], nodeOf: Map, width, height} */
export function layout(jobs, { fold = 12, most = 300 } = {}) {
  const graph = connect(jobs);
  const nodes = group(graph, fold, most);
  const nodeOf = new Map();
  for (const node of nodes) for (const id of node.jobs) nodeOf.set(id, node);
  const edges = join(graph, nodeOf);
  // Scopes tell jobs of one type apart; where there are none, their line is not needed.
  const height = jobs.some((job) => job.scope) ? SIZE.tall : SIZE.height;
  return { nodes, edges, nodeOf, size: { ...SIZE, height }, ...place(nodes, edges, height) };
}

function connect(jobs) {
  const rows = new Map(jobs.map((job) => [job.id, job]));
  const before = new Map();
  const after = new Map(jobs.map((job) => [job.id, []]));
  for (const job of jobs) {
    const found = new Set(job.depends_on.filter((id) => rows.has(id)));
    if (rows.has(job.parent_id)) found.add(job.parent_id);
    before.set(job.id, [...found]);
    for (const id of found) after.get(id).push(job.id);
  }
  return { rows, before, after, layer: layers(rows, before, after) };
}

function layers(rows, before, after) {
  const layer = new Map();
  const left = new Map([...before].map(([id, all]) => [id, all.length]));
  const ready = [...rows.keys()].filter((id) => !left.get(id));
  for (const id of ready) layer.set(id, 0);
  for (let next = 0; next < ready.length; next += 1) {
    for (const id of after.get(ready[next])) {
      layer.set(id, Math.max(layer.get(id) ?? 0, layer.get(ready[next]) + 1));
      left.set(id, left.get(id) - 1);
      if (!left.get(id)) ready.push(id);
    }
  }
  return layer;
}

function group(graph, fold, most) {
  const kind = (id) => graph.rows.get(id).job_type ?? "";
  const fine = classes(graph, (id) => `${graph.layer.get(id)} ${kind(id)}`, 6);
  for (const [found, limit] of [
    [fine, fold],
    [fine, 1],
  ]) {
    const nodes = toNodes(graph, found, limit);
    if (nodes.length <= most) return nodes;
  }
  const coarse = classes(graph, (id) => `${graph.layer.get(id)} ${kind(id)}`, 0);
  let nodes = toNodes(graph, coarse, 1);
  // A chain of thousands: neighbouring layers share a node.
  for (let band = 2; nodes.length > most; band *= 2) {
    nodes = toNodes(
      graph,
      classes(graph, (id) => `${Math.floor(graph.layer.get(id) / band)} ${kind(id)}`, 0),
      1,
      band,
    );
    if (band > graph.rows.size) break;
  }
  return nodes;
}

/** Job id -> class: alike at first by `label`, then, round by round, only if their neighbours are alike, too. */
function classes({ rows, before, after }, label, rounds) {
  let names = new Map([...rows.keys()].map((id) => [id, label(id)]));
  let colours = number(names);
  for (let round = 0; round < rounds; round += 1) {
    const about = (ids) => [...new Set(ids.map((id) => colours.of.get(id)))].sort((a, b) => a - b).join(",");
    names = new Map(
      [...rows.keys()].map((id) => [id, `${colours.of.get(id)}|${about(before.get(id))}|${about(after.get(id))}`]),
    );
    const next = number(names);
    const settled = next.count === colours.count;
    colours = next;
    if (settled) break;
  }
  return colours.of;
}

function number(names) {
  const numbers = new Map();
  const of = new Map();
  for (const [id, name] of names) {
    if (!numbers.has(name)) numbers.set(name, numbers.size);
    of.set(id, numbers.get(name));
  }
  return { of, count: numbers.size };
}

function toNodes({ rows, layer }, found, limit, band = 1) {
  const members = new Map();
  for (const [id, colour] of found) members.has(colour) ? members.get(colour).push(id) : members.set(colour, [id]);
  const nodes = [];
  for (const ids of members.values()) {
    const first = ids[0];
    const at = Math.floor(layer.get(first) / band);
    const node = (jobs, key) => nodes.push({ key, type: rows.get(jobs[0]).job_type, jobs, layer: at, order: jobs[0] });
    if (ids.length > limit) node(ids, `group-${at}-${first}`);
    else for (const id of ids) node([id], `job-${id}`);
  }
  return nodes;
}

function join({ before, rows }, nodeOf) {
  const edges = new Map();
  for (const [id, all] of before) {
    for (const other of all) {
      const from = nodeOf.get(other);
      const to = nodeOf.get(id);
      const key = `${from.key} ${to.key}`;
      const row = rows.get(id);
      const chained = other === row.parent_id && !row.depends_on.includes(other);
      if (from === to) continue;
      if (!edges.has(key)) edges.set(key, { from, to, chained });
      else if (!chained) edges.get(key).chained = false;
    }
  }
  return [...edges.values()];
}

function place(nodes, edges, tall) {
  const columns = [];
  for (const node of nodes) (columns[node.layer] ??= []).push(node);
  const filled = columns.filter(Boolean);
  const near = { from: new Map(), to: new Map() };
  for (const { from, to } of edges) {
    (near.to.get(to) ?? near.to.set(to, []).get(to)).push(from);
    (near.from.get(from) ?? near.from.set(from, []).get(from)).push(to);
  }
  for (const column of filled)
    column
      .sort((a, b) => a.order - b.order)
      .forEach((node, index) => {
        node.row = index;
      });
  // Each node goes near the middle of its neighbours: fewer edges cross.
  for (let sweep = 0; sweep < 4; sweep += 1) {
    const side = sweep % 2 ? near.from : near.to;
    for (const column of sweep % 2 ? [...filled].reverse() : filled) {
      const middle = new Map(
        column.map((node) => [node, mean((side.get(node) ?? []).map(share(filled)), share(filled)(node))]),
      );
      column
        .sort((a, b) => middle.get(a) - middle.get(b) || a.order - b.order)
        .forEach((node, index) => {
          node.row = index;
        });
    }
  }
  const tallest = Math.max(1, ...filled.map((column) => column.length));
  const { width, across, down } = SIZE;
  filled.forEach((column, index) => {
    const free = ((tallest - column.length) * (tall + down)) / 2;
    for (const node of column) {
      node.column = index;
      node.x = index * (width + across);
      node.y = free + node.row * (tall + down);
    }
  });
  return { columns: filled, width: filled.length * (width + across) - across, height: tallest * (tall + down) - down };
}

const mean = (values, otherwise) =>
  values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : otherwise;

/** A node's place in its layer from 0 to 1, so that layers of different lengths compare. */
const share = (columns) => (node) => {
  const column = columns.find((all) => all[0].layer === node.layer);
  return (node.row + 0.5) / column.length;
};
