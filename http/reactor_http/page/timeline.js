// When each job waited, for what, and when it ran.

import * as address from "./router.js";
import { h, setAttribute, setText } from "./dom.js";
import { ENDED, setShape, shape } from "./states.js";
import { cell, table } from "./table.js";
import { clock, duration, moment, now } from "./time.js";

const COLUMNS = [
  ["name", "Job"],
  ["track", "Time"],
  ["words", "Waited and ran"],
];

/** The stretches of a job's life in milliseconds, and which job it waited for longest. Pure. */
export function life(row, jobs, present) {
  const created = moment(row.created_at);
  const end = moment(row.finished_at) ?? present;
  const started = moment(row.started_at);
  const needed = row.depends_on.map((id) => jobs.get(id)).filter(Boolean);
  const unmet = needed.filter((other) => !other.finished_at);
  let last = null;
  for (const other of needed) {
    // What ended after this one was cancelled is not what it waited for.
    if (!other.finished_at || moment(other.finished_at) > end) continue;
    if (!last || moment(other.finished_at) > moment(last.finished_at)) last = other;
  }
  let released = created;
  if (row.state === "waiting") released = end;
  else if (last) released = Math.min(started ?? end, Math.max(created, moment(last.finished_at)));
  const began = started ?? (row.state === "running" ? moment(row.locked_at) : null) ?? end;
  return {
    created,
    released,
    began: Math.max(began, released),
    end: Math.max(end, released),
    blocker: row.state === "waiting" ? (unmet[0] ?? last) : last,
    ran: started !== null || row.state === "running",
  };
}

function words(row, { created, released, began, end, blocker, ran }) {
  const parts = [];
  if (blocker && released > created)
    parts.push(`waited ${duration((released - created) / 1000)} for ${blocker.job_type ?? "a row"} #${blocker.id}`);
  if (began - released >= 1) parts.push(`queued ${duration((began - released) / 1000)}`);
  const lasted = duration((end - began) / 1000);
  // Between two attempts it does not run, whenever it began.
  if (ran)
    parts.push(
      row.state === "running"
        ? `runs for ${lasted}`
        : ENDED.has(row.state)
          ? `ran ${lasted}`
          : `first tried ${lasted} ago`,
    );
  if (row.attempts > 1) parts.push(`${row.attempts} attempts`);
  if (row.state === "cancelled" && !ran) parts.push("cancelled");
  return parts.join(", ") || row.state;
}

/** Round steps of time for the axis: {step, unit} so that there are about `count` of them. Pure. */
export function ticks(span, count) {
  const steps = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5,
    108e5, 216e5, 432e5, 864e5,
  ];
  return steps.find((step) => span / step <= count) ?? Math.ceil(span / count / 864e5) * 864e5;
}

export class Timeline {
  #store;
  #table;
  #params = {};
  #from = 0;
  #to = 1;
  #axis = h("div", { class: "axis", "aria-hidden": "true" });
  #note = h("p", { class: "muted" });

  constructor(store) {
    this.#store = store;
    this.#table = table("timeline", "Timeline", COLUMNS, { key: (item) => item.row.id, make: () => this.#row() });
    this.#table.element.querySelector(".track").append(this.#axis);
    const key = [
      ["waits", "waited for other jobs"],
      ["queues", "queued"],
      ["runs", "ran"],
    ];
    this.element = h(
      "section",
      { "aria-label": "Timeline" },
      h(
        "div",
        { class: "legend" },
        key.map(([kind, label]) => h("span", {}, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), label)),
        this.#note,
      ),
      this.#table.element,
    );
  }

  close() {
    this.#table.close();
  }

  draw(params) {
    this.#params = params;
    const present = now();
    const items = [...this.#store.jobs.values()].map((row) => ({ row, life: life(row, this.#store.jobs, present) }));
    if (!items.length) return;
    this.#from = items.reduce((least, item) => Math.min(least, item.life.created), Infinity);
    this.#to = Math.max(
      this.#from + 10,
      items.reduce((most, item) => Math.max(most, item.life.end), 0),
    );
    items.sort((a, b) => a.life.began - b.life.began || a.row.id - b.row.id);
    this.#drawAxis();
    setText(this.#note, `from ${clock(this.#from)}, ${duration((this.#to - this.#from) / 1000)} in all`);
    this.#table.show(items);
  }

  #drawAxis() {
    const span = this.#to - this.#from;
    const step = ticks(span, this.#axis.clientWidth < 300 ? 3 : 6);
    const marks = [];
    for (let at = 0; at <= span * 0.94; at += step) marks.push(at);
    const facts = marks.join() + span;
    if (this.#axis.dataset.facts === facts) return;
    this.#axis.dataset.facts = facts;
    this.#axis.replaceChildren(
      ...marks.map((at) => {
        const mark = h("span", {}, at ? duration(at / 1000) : "0");
        mark.style.left = `${(at / span) * 100}%`;
        return mark;
      }),
    );
  }

  #row() {
    const icon = shape("pending");
    const link = h("a", { class: "cover", "data-view": true });
    const id = h("span", { class: "id" });
    const parts = Object.fromEntries(
      ["waits", "queues", "runs"].map((kind) => [kind, h("i", { class: `span ${kind}` })]),
    );
    const said = cell("words");
    const track = cell("track", Object.values(parts));
    const element = h("div", { role: "row", class: "row" }, cell("name", icon, link, id), track, said);
    const put = (part, from, to) => {
      const span = this.#to - this.#from;
      part.hidden = to <= from;
      part.style.left = `${((from - this.#from) / span) * 100}%`;
      part.style.width = `${((to - from) / span) * 100}%`;
    };
    return {
      element,
      update: ({ row, life: { created, released, began, end, blocker, ran } }) => {
        setShape(icon, row.state);
        setText(link, row.job_type ?? "(adopted row)");
        setAttribute(link, "href", address.to({ ...this.#params, job: row.id }));
        setText(id, `#${row.id}`);
        put(parts.waits, created, released);
        put(parts.queues, released, ran ? began : end);
        put(parts.runs, began, ran ? end : began);
        setAttribute(parts.runs, "class", `span runs is-${row.state}`);
        const text = words(row, { created, released, began: ran ? began : end, end, blocker, ran });
        setText(said, text);
        setAttribute(said, "title", text);
        element.classList.toggle("chosen", String(row.id) === this.#params.job);
      },
    };
  }
}
