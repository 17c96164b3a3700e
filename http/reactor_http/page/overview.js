// How the whole system does: throughput, queues, durations, pods.

import * as address from "./router.js";
import * as api from "./api.js";
import { chart } from "./chart.js";
import { h, setAttribute, setText } from "./dom.js";
import { ENDED, shape } from "./states.js";
import { age, duration, moment, now, number } from "./time.js";

const EVERY = 5000;
const SOON = 2000; // after an event, what is queued and who works
const SELDOM = 10000; // figures over many jobs, which cost the database more
const SPANS = { 60: "hour", 360: "6 hours", 1440: "day" };
const KEPT = 720; // samples of the queue depth: an hour of them
const UNKNOWN = "not known now";

export class OverviewView {
  #params;
  #timer = null;
  #closed = false;
  #stream;
  #asked = 0;
  #depth = [];
  #answers = null;
  #soon = null;
  #missing = [];
  #figures = null;
  #facts = h("div", { class: "tiles" });
  #charts = h("div", { class: "charts" });
  #tables = h("div", { class: "tables" });
  #empty = h("p", { class: "empty" }, "Loading …");
  #spans;
  #type = h("select", {
    "aria-label": "Type of jobs",
    change: () => address.go({ ...this.#params, job_type: this.#type.value }, { replace: true }),
  });

  constructor(root, params, app) {
    app.setTitle("Overview");
    this.#spans = Object.entries(SPANS).map(([minutes, name]) => [
      minutes,
      h("a", { class: "chip", "data-view": true }, `last ${name}`),
    ]);
    root.append(
      h(
        "div",
        { class: "heading" },
        h("h1", {}, "Overview"),
        h(
          "div",
          { class: "chips" },
          this.#spans.map(([, chip]) => chip),
        ),
      ),
      this.#empty,
      this.#facts,
      this.#charts,
      this.#tables,
    );
    // The stream tells that something happened; what it means for the whole is asked for, and not for each event.
    this.#stream = app.stream("v1/events", null, (name) => {
      if (name === "pipeline") this.#soon ??= setTimeout(() => this.#load(), SOON);
    });
    this.update(params);
  }

  update(params) {
    this.#params = params;
    for (const [minutes, chip] of this.#spans) {
      setAttribute(chip, "href", address.to({ ...params, view: "overview", minutes }));
      setAttribute(chip, "aria-current", minutes === this.#minutes ? "true" : null);
    }
    this.#load();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#soon);
    this.#stream.close();
  }

  get #minutes() {
    return this.#params.minutes in SPANS ? this.#params.minutes : "60";
  }

  async #load() {
    clearTimeout(this.#timer);
    clearTimeout(this.#soon);
    const asked = (this.#asked += 1);
    try {
      if (!document.hidden) {
        const paths = [`v1/stats/history?minutes=${this.#minutes}`, "v1/stats?days=1", "v1/workers", "v1/queues"];
        const [history, stats, { workers }, { queues, draining }] = await this.#ask(paths);
        if (asked !== this.#asked || this.#closed) return;
        this.#answers = { history, stats, workers, queues, draining };
        this.#depth = [...this.#depth, [now(), queues && sum(queues, "due")]].slice(-KEPT);
        this.#draw();
      }
    } catch (error) {
      if (asked !== this.#asked || this.#closed) return;
      this.#empty.hidden = Boolean(this.#answers);
      setText(this.#empty, error.words ?? error.message);
    }
    this.#soon = null;
    this.#timer = setTimeout(() => this.#load(), EVERY);
  }

  /** Figures over many jobs can be refused or too slow while the rest is well: then the rest is shown, and what is missing is said. */
  async #ask(paths) {
    const nothing = [
      { minutes: Number(this.#minutes), bucket_seconds: 60, buckets: [], durations: [], missing: true },
      { types: null },
      { workers: null },
      { queues: null, draining: false },
    ];
    const ask = (index, missing) =>
      api.get(paths[index]).catch((error) => {
        if (!(error instanceof api.Refused)) throw error;
        missing.push(error.words);
        return nothing[index];
      });
    if (this.#figures?.path !== paths[0] || now() - this.#figures.at > SELDOM) {
      const missing = [];
      this.#figures = {
        path: paths[0],
        at: now(),
        missing,
        answers: await Promise.all([ask(0, missing), ask(1, missing)]),
      };
    }
    const missing = [];
    const rest = await Promise.all([ask(2, missing), ask(3, missing)]);
    this.#missing = [...this.#figures.missing, ...missing];
    return [...this.#figures.answers, ...rest];
  }

  #draw() {
    this.#empty.hidden = !this.#missing.length;
    setText(this.#empty, this.#missing.join(" "));
    this.#drawTiles();
    this.#drawCharts();
    const { workers, queues, stats } = this.#answers;
    renew(this.#tables, [pods(workers), queuesTable(queues), types(stats.types)], ".scroll, .empty");
  }

  #drawTiles() {
    const { history, workers, queues, draining } = this.#answers;
    const oldest = queues?.reduce((most, queue) => Math.max(most, queue.oldest_due_seconds ?? 0), 0);
    const alive = workers?.filter((worker) => worker.is_alive);
    const failed = sum(history.buckets, "failed");
    const finished = sum(history.buckets, "finished");
    // What was not answered is not none.
    const tile = (name, known, tell) => [name, ...(known ? tell() : ["–", UNKNOWN])];
    const tiles = [
      tile("Running", queues && alive, () => [
        number(sum(queues, "running")),
        `of ${number(sum(alive, "capacity"))} places`,
      ]),
      tile("Queued", queues, () => [
        number(sum(queues, "due")),
        `${number(sum(queues, "scheduled"))} for later, ${number(sum(queues, "waiting"))} wait for others`,
      ]),
      tile("Oldest queued job", queues, () => [
        oldest ? duration(oldest) : "–",
        oldest ? "since it was due" : "nothing waits for a pod",
      ]),
      tile("Ended", !history.missing, () => [number(finished), `in the last ${SPANS[this.#minutes]}`]),
      tile("Failed", !history.missing, () => [
        number(failed),
        finished ? `${((failed / finished) * 100).toFixed(1)} % of those that ended` : "nothing ended",
      ]),
      tile("Pods", alive, () => [
        number(new Set(alive.map((worker) => worker.pod)).size),
        draining
          ? "draining: no job is started"
          : `${number(alive.length)} worker ${alive.length === 1 ? "process" : "processes"}`,
      ]),
    ];
    if (this.#facts.childElementCount !== tiles.length)
      this.#facts.replaceChildren(
        ...tiles.map(([name]) =>
          h("div", { class: "tile" }, h("span", { class: "muted" }, name), h("b", {}), h("span", { class: "muted" })),
        ),
      );
    tiles.forEach(([name, value, more], index) => {
      const [, figure, note] = this.#facts.children[index].children;
      setText(figure, value);
      setText(note, more);
      this.#facts.children[index].classList.toggle("bad", name === "Failed" && failed > 0);
    });
  }

  #drawCharts() {
    const { history } = this.#answers;
    const to = now();
    const from = to - history.minutes * 60000;
    const wide = history.bucket_seconds * 1000;
    const perSecond = (name) =>
      history.buckets
        .filter(({ at }) => moment(at) + wide <= to)
        .map((bucket) => [moment(bucket.at) + wide / 2, bucket[name] / history.bucket_seconds]);
    const types = [...new Set(history.durations.map(({ job_type }) => job_type))].sort();
    const chosen = types.includes(this.#params.job_type) ? this.#params.job_type : types[0];
    const of = (name) =>
      history.durations
        .filter(({ job_type }) => job_type === chosen)
        .map((row) => [moment(row.at) + wide / 2, row[name]]);
    this.#drawTypes(types, chosen);
    const opened = this.#depth[0][0];
    // Two beside each other where there is room for two; padding and border are 34 pixels.
    const room = this.#charts.clientWidth;
    const width = Math.max(240, (room > 852 ? (room - 12) / 2 : room) - 34);
    const durations = chart({
      width,
      title: "Duration",
      unit: "seconds",
      from,
      to,
      gap: wide * 1.5,
      format: short,
      series: [
        { name: "p50", kind: "first", points: of("p50_seconds") },
        { name: "p95", kind: "second", points: of("p95_seconds") },
      ],
    });
    renew(
      this.#charts,
      [
        chart({
          width,
          title: "Throughput",
          unit: "jobs per second",
          from,
          to,
          gap: wide * 1.5,
          format: short,
          series: [
            { name: "created", kind: "third", points: perSecond("created") },
            { name: "ended", kind: "first", points: perSecond("finished") },
          ],
        }),
        chart({
          width,
          title: "Failures",
          unit: "jobs per second",
          from,
          to,
          gap: wide * 1.5,
          format: short,
          series: [{ name: "failed", kind: "bad", points: perSecond("failed") }],
        }),
        durations,
        chart({
          width,
          whole: true,
          title: "Queued",
          unit: "jobs, since this view was opened",
          from: opened,
          to: Math.max(to, opened + 60000),
          gap: EVERY * 3,
          format: short,
          series: [{ name: "due and not running", kind: "first", points: this.#depth }],
        }),
      ],
      "svg",
    );
    if (!this.#type.isConnected) this.#charts.children[2].querySelector("figcaption b").after(this.#type);
  }

  #drawTypes(types, chosen) {
    const key = JSON.stringify([types, chosen]);
    if (this.#type.dataset.key === key) return;
    this.#type.dataset.key = key;
    this.#type.replaceChildren(...types.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    this.#type.hidden = !types.length;
  }
}

/** Puts new content into parts that stay: somebody may have the focus in them, have scrolled them, or have a list open. */
function renew(place, parts, content) {
  if (!place.childElementCount) place.replaceChildren(...parts);
  parts.forEach((part, index) => {
    const [before, after] = [place.children[index], part].map((element) => element.querySelector(content));
    if (before === after) return;
    if (before.className === "scroll" && after.className === "scroll") before.replaceChildren(...after.children);
    else before.replaceWith(after);
  });
}

const sum = (rows, name) => rows.reduce((total, row) => total + (row[name] ?? 0), 0);

function short(value) {
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e3) return `${+(value / 1e3).toPrecision(3)} k`;
  return String(+value.toPrecision(3));
}

function simple(label, headings, rows, nothing) {
  const content = rows?.length
    ? h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
        h(
          "table",
          { class: "simple" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              headings.map((name) => h("th", { scope: "col" }, name)),
            ),
          ),
          h(
            "tbody",
            {},
            rows.map((row) =>
              h(
                "tr",
                {},
                row.map((value) => h("td", {}, value)),
              ),
            ),
          ),
        ),
      )
    : h("p", { class: "empty" }, rows ? nothing : UNKNOWN);
  return h("section", {}, h("h2", {}, label), content);
}

function load(worker) {
  const fill = h("span", { class: `fill is-running` });
  fill.style.width = `${worker.capacity ? Math.min(100, (worker.running / worker.capacity) * 100) : 0}%`;
  return h(
    "span",
    { class: "load" },
    h("span", { class: "bar", "aria-hidden": "true" }, fill),
    `${worker.running} of ${worker.capacity}`,
  );
}

function pods(workers) {
  const rows = workers?.map((worker) => {
    const counts = worker.counts ?? {};
    return [
      h(
        "span",
        {},
        shape(worker.is_alive ? "completed" : "failed", worker.is_alive ? "alive" : "dead"),
        " ",
        worker.pod,
      ),
      load(worker),
      worker.is_alive ? duration(worker.heartbeat_age_seconds) : `dead, ${duration(worker.heartbeat_age_seconds)}`,
      age(worker.started_at),
      counted(counts.wakes),
      counted(counts.polls),
      counted(counts.missed_wakes),
      (worker.job_types ?? []).join(", "),
    ];
  });
  return simple(
    "Pods",
    [
      "Pod",
      "Load",
      "Last heartbeat",
      "Started",
      "Woken by notification",
      "Woken by poll",
      "Missed notifications",
      "Types",
    ],
    rows,
    "No pod has shown itself within the hour. Start one: reactor worker --app your.handlers",
  );
}

const counted = (count) => (count === undefined ? "–" : number(count));

function queuesTable(queues) {
  const rows = queues?.map((queue) => [
    queue.queue,
    queue.paused ? "paused" : "open",
    `${number(queue.running)}${queue.max_running === null ? "" : ` of ${number(queue.max_running)}`}`,
    number(queue.due),
    number(queue.scheduled),
    number(queue.waiting),
    queue.oldest_due_seconds === null ? "–" : duration(queue.oldest_due_seconds),
  ]);
  return simple(
    "Queues",
    ["Queue", "State", "Running", "Queued", "For later", "Waiting for jobs", "Oldest"],
    rows,
    "Nothing is queued.",
  );
}

function types(rows) {
  const shown = rows
    ?.filter(({ state }) => ENDED.has(state))
    .sort((a, b) => (a.job_type ?? "").localeCompare(b.job_type ?? "") || a.state.localeCompare(b.state));
  return simple(
    "Ended in the last day, by type",
    ["Type", "State", "Jobs", "Average", "p50", "p95", "Retried"],
    shown?.map((row) => [
      row.job_type ?? "(adopted rows)",
      h("span", { class: "nowrap" }, shape(row.state), " ", row.state),
      number(row.count),
      duration(row.average_seconds),
      duration(row.p50_seconds),
      duration(row.p95_seconds),
      number(row.retried),
    ]),
    "Nothing has ended yet.",
  );
}
