// @ts-check
// The state of the whole system: throughput, queues, durations, pods.

import * as api from "./api.js";
import { chart } from "./chart.js";
import { h, setAttribute, setText } from "./dom.js";
import { hrefTo, navigate } from "./router.js";
import { shape, TERMINAL } from "./states.js";
import { age, duration, now, number, toMs } from "./time.js";

/** @import { App, Bucket, Child, History, Params, Point, Queue, Series, TypeStats, Worker } from "./types.js" */

const RELOAD_MS = 5000;
const AFTER_EVENT_MS = 2000; // events only say that something happened; several share one reload
const STATS_MS = 10000; // between two requests for figures over many jobs, which cost the database more
const MAX_SAMPLES = 720; // of the queue depth: an hour
const UNKNOWN = "unavailable";
const TWO_CHARTS = 852; // pixels: from here on there are two charts per line
const CHART_GAP = 12; // pixels, as in style.css
const CHART_PADDING = 34; // pixels: padding and border, as in style.css
/** @type {[minutes: string, name: string][]} */
const RANGES = [
  ["60", "hour"],
  ["360", "6 hours"],
  ["1440", "day"],
];

/**
 * The newest answers; null where the server refused.
 *
 * @typedef {object} Answers
 * @property {History | null} history
 * @property {TypeStats[] | null} types
 * @property {Worker[] | null} workers
 * @property {Queue[] | null} queues
 * @property {boolean} isDraining
 * @property {string[]} problems
 */

/** @typedef {Pick<Answers, "history" | "types" | "problems"> & { minutes: string, at: number }} Figures */

export class OverviewView {
  /** @type {Params} */
  #params = {};
  #stream;
  #isClosed = false;
  #loads = 0;
  /** @type {Answers | null} */
  #answers = null;
  /** @type {Figures | null} */
  #figures = null;
  /**
   * How many jobs were due, since the view was opened.
   *
   * @type {Point[]}
   */
  #depth = [];
  /** @type {number | undefined} */
  #timer;
  /** @type {number | undefined} */
  #eventTimer;
  #tiles = h("div", { class: "tiles" });
  #charts = h("div", { class: "charts" });
  #tables = h("div", { class: "tables" });
  #message = h("p", { class: "empty" }, "Loading …");
  #rangeLinks = RANGES.map(([minutes, name]) => ({
    minutes,
    link: h("a", { class: "chip", "data-view": true }, `last ${name}`),
  }));
  /** @type {HTMLSelectElement} */
  #typeSelect = h("select", {
    "aria-label": "Job type",
    change: () => navigate({ ...this.#params, job_type: this.#typeSelect.value }, { replace: true }),
  });

  /**
   * @param {HTMLElement} root
   * @param {Params} params
   * @param {App} app
   */
  constructor(root, params, app) {
    app.setTitle("Overview");
    const ranges = h("div", { class: "chips" }, ...this.#rangeLinks.map(({ link }) => link));
    root.append(
      h("div", { class: "heading" }, h("h1", {}, "Overview"), ranges),
      this.#message,
      this.#tiles,
      this.#charts,
      this.#tables,
    );
    this.#stream = app.openPipelinesStream(({ name }) => {
      if (name === "pipeline") this.#eventTimer ??= setTimeout(() => this.#load(), AFTER_EVENT_MS);
    });
    this.update(params);
  }

  /** @param {Params} params */
  update(params) {
    this.#params = params;
    for (const { minutes, link } of this.#rangeLinks) {
      setAttribute(link, "href", hrefTo({ ...params, view: "overview", minutes }));
      setAttribute(link, "aria-current", minutes === this.#range[0] ? "true" : null);
    }
    this.#load();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#eventTimer);
    this.#stream.close();
  }

  get #range() {
    return RANGES.find(([minutes]) => minutes === this.#params.minutes) ?? RANGES[0];
  }

  async #load() {
    clearTimeout(this.#timer);
    clearTimeout(this.#eventTimer);
    this.#loads += 1;
    const load = this.#loads;
    const isOutdated = () => load !== this.#loads || this.#isClosed;
    try {
      if (!document.hidden) {
        const answers = await this.#request();
        if (isOutdated()) return;
        this.#answers = answers;
        /** @type {Point} */
        const sample = [now(), answers.queues && sum(answers.queues, (queue) => queue.due)];
        this.#depth = [...this.#depth, sample].slice(-MAX_SAMPLES);
        this.#draw(answers);
      }
    } catch (error) {
      if (isOutdated()) return;
      this.#message.hidden = Boolean(this.#answers);
      setText(this.#message, api.describe(error));
    }
    this.#eventTimer = undefined;
    this.#timer = setTimeout(() => this.#load(), RELOAD_MS);
  }

  /**
   * The server may refuse figures over many jobs while the rest works: then the rest is shown, with a message.
   *
   * @returns {Promise<Answers>}
   */
  async #request() {
    const minutes = this.#range[0];
    const isFresh = this.#figures?.minutes === minutes && now() - this.#figures.at <= STATS_MS;
    const figures = this.#figures && isFresh ? this.#figures : await requestFigures(minutes);
    this.#figures = figures;
    /** @type {string[]} */
    const problems = [];
    const [workers, queues] = await Promise.all([
      unlessRefused(api.getWorkers(), problems),
      unlessRefused(api.getQueues(), problems),
    ]);
    return {
      history: figures.history,
      types: figures.types,
      workers: workers && workers.workers,
      queues: queues && queues.queues,
      isDraining: queues?.draining ?? false,
      problems: [...figures.problems, ...problems],
    };
  }

  /** @param {Answers} answers */
  #draw(answers) {
    this.#message.hidden = !answers.problems.length;
    setText(this.#message, answers.problems.join(" "));
    this.#drawTiles(answers);
    this.#drawCharts(answers.history);
    const tables = [podsTable(answers.workers), queuesTable(answers.queues), typesTable(answers.types)];
    replaceContents(this.#tables, tables, ".scroll, .empty");
  }

  /** @param {Answers} answers */
  #drawTiles(answers) {
    const tiles = [
      runningTile(answers),
      queuedTile(answers.queues),
      oldestTile(answers.queues),
      finishedTile(answers.history, this.#range[1]),
      failedTile(answers.history),
      podsTile(answers),
    ];
    if (!this.#tiles.childElementCount) {
      const elements = tiles.map(({ name }) =>
        h("div", { class: "tile" }, h("span", { class: "muted" }, name), h("b", {}), h("span", { class: "muted" })),
      );
      this.#tiles.replaceChildren(...elements);
    }
    tiles.forEach(({ value, note, isFailure }, index) => {
      const tile = this.#tiles.children[index];
      setText(tile.children[1], value);
      setText(tile.children[2], note);
      tile.classList.toggle("danger", Boolean(isFailure));
    });
  }

  /** @param {History | null} known */
  #drawCharts(known) {
    const history = known ?? { minutes: Number(this.#range[0]), bucket_seconds: 60, buckets: [], durations: [] };
    const to = now();
    const bucketMs = history.bucket_seconds * 1000;
    const common = { width: this.#chartWidth, format: shortNumber };
    const axis = { ...common, from: to - history.minutes * 60000, to, gap: bucketMs * 1.5 };
    const charts = [
      chart({ ...axis, title: "Throughput", unit: "jobs per second", series: throughput(history, to) }),
      chart({ ...axis, title: "Failures", unit: "jobs per second", series: failures(history, to) }),
      chart({ ...axis, title: "Duration", unit: "seconds", series: this.#durations(history) }),
      chart({ ...common, ...this.#queuedChart(to) }),
    ];
    replaceContents(this.#charts, charts, "svg");
    if (!this.#typeSelect.isConnected) this.#charts.children[2].querySelector("b")?.after(this.#typeSelect);
  }

  /** Two charts per line if there is room for two. */
  get #chartWidth() {
    const room = this.#charts.clientWidth;
    const place = room > TWO_CHARTS ? (room - CHART_GAP) / 2 : room;
    return Math.max(240, place - CHART_PADDING);
  }

  /** @param {number} to */
  #queuedChart(to) {
    const opened = this.#depth[0][0];
    return {
      whole: true,
      title: "Queued",
      unit: "jobs, since this view was opened",
      from: opened,
      to: Math.max(to, opened + 60000),
      gap: RELOAD_MS * 3,
      series: [{ name: "due and not running", kind: "series-1", points: this.#depth }],
    };
  }

  /**
   * Of the type that is selected.
   *
   * @param {History} history
   * @returns {Series[]}
   */
  #durations(history) {
    const types = [...new Set(history.durations.map((row) => row.job_type))].sort();
    const selected = types.find((name) => name === this.#params.job_type) ?? types[0];
    this.#drawTypeSelect(types, selected);
    const middle = history.bucket_seconds * 500;
    const rows = history.durations.filter((row) => row.job_type === selected);
    return [
      { name: "p50", kind: "series-1", points: rows.map((row) => [toMs(row.at) + middle, row.p50_seconds]) },
      { name: "p95", kind: "series-2", points: rows.map((row) => [toMs(row.at) + middle, row.p95_seconds]) },
    ];
  }

  /**
   * @param {string[]} types
   * @param {string | undefined} selected
   */
  #drawTypeSelect(types, selected) {
    const key = JSON.stringify([types, selected]);
    if (this.#typeSelect.dataset.key === key) return;
    this.#typeSelect.dataset.key = key;
    const options = types.map((name) => h("option", { value: name, selected: name === selected }, name));
    this.#typeSelect.replaceChildren(...options);
    this.#typeSelect.hidden = !types.length;
  }
}

/**
 * @param {string} minutes
 * @returns {Promise<Figures>}
 */
async function requestFigures(minutes) {
  /** @type {string[]} */
  const problems = [];
  const at = now();
  const [history, stats] = await Promise.all([
    unlessRefused(api.getHistory(minutes), problems),
    unlessRefused(api.getStatsOfLastDay(), problems),
  ]);
  return { minutes, at, history, types: stats && stats.types, problems };
}

/**
 * The answer, or null and a problem if the server refused.
 *
 * @template Answer
 * @param {Promise<Answer>} answer
 * @param {string[]} problems
 */
async function unlessRefused(answer, problems) {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof api.Refused)) throw error;
    problems.push(error.description);
    return null;
  }
}

/**
 * New content for elements that stay: they may have the focus, a scroll position or an open list.
 *
 * @param {HTMLElement} place
 * @param {HTMLElement[]} elements
 * @param {string} content selects the part of each element that changes
 */
function replaceContents(place, elements, content) {
  if (!place.childElementCount) place.replaceChildren(...elements);
  elements.forEach((element, index) => {
    const previous = place.children[index].querySelector(content);
    const next = element.querySelector(content);
    if (!previous || !next || previous === next) return;
    const isScrollable = previous.className === "scroll" && next.className === "scroll";
    if (isScrollable) previous.replaceChildren(...next.children);
    else previous.replaceWith(next);
  });
}

/**
 * @template Row
 * @param {Row[]} rows
 * @param {(row: Row) => number} value
 */
const sum = (rows, value) => rows.reduce((total, row) => total + value(row), 0);

// Charts

/**
 * Without the current bucket, which is incomplete and would look like a drop.
 *
 * @param {History} history
 * @param {number} to
 * @param {(bucket: Bucket) => number} value
 * @returns {Point[]}
 */
function perSecond(history, to, value) {
  const bucketMs = history.bucket_seconds * 1000;
  return history.buckets
    .filter((bucket) => toMs(bucket.at) + bucketMs <= to)
    .map((bucket) => [toMs(bucket.at) + bucketMs / 2, value(bucket) / history.bucket_seconds]);
}

/**
 * @param {History} history
 * @param {number} to
 */
const throughput = (history, to) => [
  { name: "created", kind: "series-3", points: perSecond(history, to, (bucket) => bucket.created) },
  { name: "finished", kind: "series-1", points: perSecond(history, to, (bucket) => bucket.finished) },
];

/**
 * @param {History} history
 * @param {number} to
 */
const failures = (history, to) => [
  { name: "failed", kind: "danger", points: perSecond(history, to, (bucket) => bucket.failed) },
];

/** @param {number} value */
function shortNumber(value) {
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e3) return `${+(value / 1e3).toPrecision(3)} k`;
  return String(+value.toPrecision(3));
}

// Tiles

/** @typedef {{ name: string, value: string, note: string, isFailure?: boolean }} Tile */

/**
 * A figure that the server did not give is unknown, not zero.
 *
 * @param {string} name
 * @returns {Tile}
 */
const unknownTile = (name) => ({ name, value: "–", note: UNKNOWN });

/**
 * @param {Answers} answers
 * @returns {Tile}
 */
function runningTile({ queues, workers }) {
  const name = "Running";
  if (!queues || !workers) return unknownTile(name);
  const capacity = sum(
    workers.filter((worker) => worker.is_alive),
    (worker) => worker.capacity,
  );
  return { name, value: number(sum(queues, (queue) => queue.running)), note: `of ${number(capacity)} slots` };
}

/**
 * @param {Queue[] | null} queues
 * @returns {Tile}
 */
function queuedTile(queues) {
  const name = "Queued";
  if (!queues) return unknownTile(name);
  const scheduled = number(sum(queues, (queue) => queue.scheduled));
  const waiting = number(sum(queues, (queue) => queue.waiting));
  const value = number(sum(queues, (queue) => queue.due));
  return { name, value, note: `${scheduled} scheduled, ${waiting} blocked` };
}

/**
 * @param {Queue[] | null} queues
 * @returns {Tile}
 */
function oldestTile(queues) {
  const name = "Oldest queued job";
  if (!queues) return unknownTile(name);
  const seconds = queues.reduce((most, queue) => Math.max(most, queue.oldest_due_seconds ?? 0), 0);
  if (!seconds) return { name, value: "–", note: "no job is due" };
  return { name, value: duration(seconds), note: "since it became due" };
}

/**
 * @param {History | null} history
 * @param {string} range
 * @returns {Tile}
 */
function finishedTile(history, range) {
  const name = "Finished";
  if (!history) return unknownTile(name);
  return { name, value: number(sum(history.buckets, (bucket) => bucket.finished)), note: `in the last ${range}` };
}

/**
 * @param {History | null} history
 * @returns {Tile}
 */
function failedTile(history) {
  const name = "Failed";
  if (!history) return unknownTile(name);
  const failed = sum(history.buckets, (bucket) => bucket.failed);
  const finished = sum(history.buckets, (bucket) => bucket.finished);
  const note = finished ? `${((failed / finished) * 100).toFixed(1)} % of finished jobs` : "no job finished";
  return { name, value: number(failed), note, isFailure: failed > 0 };
}

/**
 * @param {Answers} answers
 * @returns {Tile}
 */
function podsTile({ workers, isDraining }) {
  const name = "Pods";
  if (!workers) return unknownTile(name);
  const alive = workers.filter((worker) => worker.is_alive);
  const value = number(new Set(alive.map((worker) => worker.pod)).size);
  const processes = `${number(alive.length)} worker ${alive.length === 1 ? "process" : "processes"}`;
  return { name, value, note: isDraining ? "draining: no jobs start" : processes };
}

// Tables

/**
 * @param {string} label
 * @param {string[]} headings
 * @param {Child[][] | null} rows null: unknown
 * @param {string} emptyText
 */
function simpleTable(label, headings, rows, emptyText) {
  const content = rows?.length
    ? scrollable(label, headings, rows)
    : h("p", { class: "empty" }, rows ? emptyText : UNKNOWN);
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
function podsTable(workers) {
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
  const heartbeat = duration(worker.heartbeat_age_seconds);
  const icon = worker.is_alive ? shape("completed", "alive") : shape("failed", "dead");
  return [
    h("span", {}, icon, " ", worker.pod),
    load(worker),
    worker.is_alive ? heartbeat : `dead, ${heartbeat}`,
    age(worker.started_at),
    countText(worker.counts?.wakes),
    countText(worker.counts?.polls),
    countText(worker.counts?.missed_wakes),
    (worker.job_types ?? []).join(", "),
  ];
}

/** @param {number | undefined} count */
const countText = (count) => (count === undefined ? "–" : number(count));

/** @param {Queue[] | null} queues */
function queuesTable(queues) {
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
function typesTable(types) {
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
