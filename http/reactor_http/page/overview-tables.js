// @ts-check
// The tables of the overview: pods, queues, finished jobs by type.

import { h } from "./dom.js";
import { UNAVAILABLE } from "./overview-tiles.js";
import { shape, TERMINAL } from "./states.js";
import { age, duration, number } from "./time.js";

/** @import { Child, Queue, TypeStats, Worker } from "./types.js" */

/**
 * @param {string} label
 * @param {string[]} headings
 * @param {Child[][] | null} rows null: unavailable
 * @param {string} emptyText
 */
function simpleTable(label, headings, rows, emptyText) {
  const content = rows?.length
    ? scrollable(label, headings, rows)
    : h("p", { class: "empty" }, rows ? emptyText : UNAVAILABLE);
  return h("section", {}, h("h2", {}, label), content);
}

/**
 * @param {string} label
 * @param {string[]} headings
 * @param {Child[][]} rows
 */
function scrollable(label, headings, rows) {
  const head = headings.map((name) => h("th", { scope: "col" }, name));
  const body = rows.map((row) => h("tr", {}, ...row.map((value) => h("td", {}, value))));
  const content = h("table", { class: "simple" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, content);
}

/** @param {Worker} worker */
function load({ running, capacity }) {
  const fill = h("span", { class: "fill is-running" });
  fill.style.width = `${capacity ? Math.min(100, (running / capacity) * 100) : 0}%`;
  const bar = h("span", { class: "bar", "aria-hidden": "true" }, fill);
  return h("span", { class: "load" }, bar, `${running} of ${capacity}`);
}

/** @param {Worker[] | null} workers */
export function podsTable(workers) {
  const headings = [
    "Pod",
    "Load",
    "Last heartbeat",
    "Started",
    "Woken by notification",
    "Woken by poll",
    "Missed notifications",
    "Job types",
  ];
  const rows = workers && workers.map(podRow);
  const empty = "No pod was active in the last hour. Start one: reactor worker --app your.handlers";
  return simpleTable("Pods", headings, rows, empty);
}

/** @param {Worker} worker */
function podRow(worker) {
  const silentSeconds = worker.is_alive ? worker.counts?.silent_seconds : undefined;
  const alive = silentSeconds === undefined ? shape("completed", "alive") : shape("partial", "does not respond");
  return [
    h("span", {}, worker.is_alive ? alive : shape("failed", "dead"), " ", worker.pod),
    load(worker),
    lastHeartbeat(worker, silentSeconds),
    age(worker.started_at),
    countText(worker.counts?.wakes),
    countText(worker.counts?.polls),
    countText(worker.counts?.missed_wakes),
    (worker.job_types ?? []).join(", "),
  ];
}

/**
 * @param {Worker} worker
 * @param {number | undefined} silentSeconds for which its process has not responded, at that heartbeat
 */
function lastHeartbeat(worker, silentSeconds) {
  const heartbeat = duration(worker.heartbeat_age_seconds);
  if (!worker.is_alive) return `dead, ${heartbeat}`;
  return silentSeconds === undefined ? heartbeat : `${heartbeat}; no response for ${duration(silentSeconds)}`;
}

/** @param {number | undefined} count */
const countText = (count) => (count === undefined ? "–" : number(count));

/** @param {Queue[] | null} queues */
export function queuesTable(queues) {
  const headings = ["Queue", "State", "Running", "Queued", "Scheduled", "Blocked", "Oldest"];
  return simpleTable("Queues", headings, queues && queues.map(queueRow), "No unfinished jobs.");
}

/** @param {Queue} queue */
const queueRow = (queue) => [
  queue.queue,
  queue.paused ? "paused" : "active",
  `${number(queue.running)}${queue.max_running === null ? "" : ` of ${number(queue.max_running)}`}`,
  number(queue.due),
  number(queue.scheduled),
  number(queue.waiting),
  duration(queue.oldest_due_seconds),
];

/** @param {TypeStats[] | null} types */
export function typesTable(types) {
  const headings = ["Type", "State", "Jobs", "Average", "p50", "p95", "Retried"];
  const finished = types && types.filter(({ state }) => TERMINAL.has(state));
  finished?.sort((a, b) => (a.job_type ?? "").localeCompare(b.job_type ?? "") || a.state.localeCompare(b.state));
  return simpleTable(
    "Finished in the last day, by type",
    headings,
    finished && finished.map(typeRow),
    "No finished jobs.",
  );
}

/** @param {TypeStats} row */
const typeRow = (row) => [
  row.job_type ?? "(adopted rows)",
  h("span", { class: "nowrap" }, shape(row.state), " ", row.state),
  number(row.count),
  duration(row.average_seconds),
  duration(row.p50_seconds),
  duration(row.p95_seconds),
  number(row.retried),
];
