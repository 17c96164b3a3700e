// @ts-check
// The state of the whole system: throughput, queues, durations, pods.

import * as api from "./api.js";
import { chart } from "./chart.js";
import { h, setAttribute, setText } from "./dom.js";
import { podsTable, queuesTable, typesTable } from "./overview-tables.js";
import { drawTiles } from "./overview-tiles.js";
import { hrefTo, navigate } from "./router.js";
import { now, toMs } from "./time.js";

/** @import { App, Bucket, History, OverviewAnswers, Params, Point, Series } from "./types.js" */

const RELOAD_MS = 5000;
const AFTER_EVENT_MS = 2000; // events only say that something happened; several share one reload
const STATS_MS = 10000; // between two requests for figures over many jobs, which cost the database more
const MAX_SAMPLES = 720; // of the queue depth: an hour
const TWO_CHARTS = 852; // pixels: from here on there are two charts per line
const CHART_GAP = 12; // pixels, as in style.css
const CHART_PADDING = 34; // pixels: padding and border, as in style.css
/** @type {[minutes: string, name: string][]} */
const RANGES = [
  ["60", "hour"],
  ["360", "6 hours"],
  ["1440", "day"],
];

/** @typedef {Pick<OverviewAnswers, "history" | "types" | "problems"> & { minutes: string, at: number }} Figures */

export class OverviewView {
  /** @type {Params} */
  #params = {};
  #stream;
  #isClosed = false;
  #loads = 0;
  /** @type {OverviewAnswers | null} */
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
        const sample = [now(), answers.queues && answers.queues.reduce((total, queue) => total + queue.due, 0)];
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
   * @returns {Promise<OverviewAnswers>}
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

  /** @param {OverviewAnswers} answers */
  #draw(answers) {
    this.#message.hidden = !answers.problems.length;
    setText(this.#message, answers.problems.join(" "));
    drawTiles(this.#tiles, answers, this.#range[1]);
    this.#drawCharts(answers.history);
    const tables = [podsTable(answers.workers), queuesTable(answers.queues), typesTable(answers.types)];
    replaceContents(this.#tables, tables, ".scroll, .empty");
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
