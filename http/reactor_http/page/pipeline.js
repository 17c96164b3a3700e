// One pipeline, live: its graph, its jobs, its timeline, its errors.

import * as address from "./router.js";
import * as api from "./api.js";
import { pipelineButtons } from "./actions.js";
import { percent, shares } from "./progress-bar.js";
import { h, setAttribute, setChildren, setText } from "./dom.js";
import { Drawing } from "./graph.js";
import { Errors, failures } from "./errors.js";
import { Frame } from "./redraw.js";
import { JobPanel } from "./job.js";
import { Jobs } from "./jobs.js";
import { badge, shape, STATES } from "./states.js";
import { PipelineStore } from "./store.js";
import { age, between, date, duration, number } from "./time.js";
import { Timeline } from "./timeline.js";

const TABS = { graph: "Graph", jobs: "Jobs", timeline: "Timeline", errors: "Errors" };
const RUNNING_SHOWN = 6;

export class PipelineView {
  #id;
  #params;
  #app;
  #store = new PipelineStore();
  #frame;
  #stream;
  #gone = null;
  #why = null;
  #whyOf = null;
  #whyTimer = null;
  #state = badge("running");
  #title = h("h1", { tabindex: -1 }, "Loading …");
  #buttons;
  #bar = shares();
  #percent = h("b", { class: "percent" });
  #times = h("p", { class: "times muted" });
  #legend = h("ul", { class: "counts" });
  #now = h("section", { class: "now", "aria-label": "Running now" });
  #tabs;
  #content = h("div", { class: "content" });
  #panel;
  #views;
  #body;
  #known;
  #empty = h("p", { class: "empty" }, "Loading …");
  #runs = new Map();

  constructor(root, params, app) {
    this.#id = params.pipeline;
    this.#params = params;
    this.#app = app;
    this.#buttons = pipelineButtons(app);
    this.#panel = new JobPanel(this.#store, app);
    const drawing = new Drawing(this.#store, (node) => this.#openNode(node));
    this.#views = {
      graph: drawing,
      jobs: new Jobs(this.#store, drawing),
      timeline: new Timeline(this.#store),
      errors: new Errors(this.#store),
    };
    this.#tabs = Object.fromEntries(
      Object.entries(TABS).map(([tab, label]) => [tab, h("a", { "data-view": true }, label)]),
    );
    this.#body = h("div", { class: "split" }, this.#content, this.#panel.element);
    this.#known = h(
      "div",
      { hidden: true },
      this.#times,
      h("div", { class: "overall" }, this.#bar.element, this.#percent),
      this.#legend,
      this.#now,
      h("nav", { class: "tabs", "aria-label": "Parts of the pipeline" }, Object.values(this.#tabs)),
      this.#body,
    );
    root.append(
      h("div", { class: "heading" }, this.#title, this.#state.element, this.#buttons.element),
      this.#empty,
      this.#known,
    );
    // A frame of a large pipeline costs some milliseconds: four a second are still live.
    this.#frame = new Frame(
      () => this.#draw(),
      () => (this.#store.jobs.size > 1000 ? 250 : 0),
    );
    this.#stream = app.stream(
      `v1/pipelines/${encodeURIComponent(this.#id)}/events`,
      this.#id,
      (name, data) => this.#event(name, data),
      (words) => {
        this.#gone = words;
        this.#frame.request();
      },
    );
    this.update(params);
  }

  update(params) {
    const opened = params.job && params.job !== this.#params.job;
    const closed = !params.job && this.#params.job;
    this.#params = params;
    const tab = this.#tab;
    setChildren(this.#content, [this.#views[tab].element]);
    for (const [name, link] of Object.entries(this.#tabs)) {
      setAttribute(
        link,
        "href",
        address.to({ pipeline: this.#id, tab: name === "graph" ? null : name, job: params.job }),
      );
      setAttribute(link, "aria-current", name === tab ? "true" : null);
    }
    this.#draw();
    if (opened) this.#panel.focus();
    if (closed) this.#tabs[tab].focus({ preventScroll: true });
  }

  close() {
    this.#stream.close();
    this.#frame.close();
    this.#panel.close();
    clearTimeout(this.#whyTimer);
    this.#whyOf = null;
    for (const view of Object.values(this.#views)) view.close?.();
  }

  get #tab() {
    return this.#params.tab in TABS ? this.#params.tab : "graph";
  }

  #event(name, data) {
    this.#store.apply(name, data);
    this.#gone = null;
    if (name === "pipeline" || name === "snapshot") this.#retitle();
    this.#frame.request();
  }

  /** Also in a tab that nobody sees, where no frame is drawn. */
  #retitle() {
    const { state, progress } = this.#store.pipeline;
    const name = this.#store.first?.job_type ?? "pipeline";
    this.#app.setTitle(`${state === "running" ? `${percent(progress)} %` : state} ${name}`);
  }

  #openNode(node) {
    if (node.jobs.length === 1) address.go({ ...this.#params, job: node.jobs[0] });
    else address.go({ pipeline: this.#id, tab: "jobs", group: node.key });
  }

  #draw() {
    const { pipeline: row, first } = this.#store;
    this.#empty.hidden = this.#store.known && !this.#gone;
    this.#known.hidden = !this.#store.known;
    if (this.#gone) setText(this.#empty, this.#gone);
    this.#state.element.hidden = !row;
    if (this.#gone && !row) setText(this.#title, "No such pipeline");
    if (!row) return;
    this.#state.set(row.state);
    setText(this.#title, first?.job_type ?? "Pipeline");
    this.#buttons.set(row);
    this.#buttons.element.hidden = Boolean(this.#gone);
    this.#drawTimes(row);
    this.#bar.set(row);
    setText(this.#percent, `${percent(row.progress)} %`);
    this.#drawLegend(row);
    this.#drawNow(row);
    const wrong = failures(this.#store).length;
    setText(this.#tabs.jobs, `Jobs ${number(row.jobs)}`);
    setText(this.#tabs.errors, wrong ? `Errors ${number(wrong)}` : "Errors");
    const chosen = this.#params.job ? Number(this.#params.job) : null;
    this.#body.classList.toggle("with-job", chosen !== null);
    this.#panel.show(chosen, this.#params);
    if (this.#tab === "graph") this.#views.graph.draw(chosen);
    else this.#views[this.#tab].draw(this.#params);
    this.#panel.draw();
    this.#store.changed.clear();
  }

  #drawTimes(row) {
    const lasted = row.started_at
      ? `${row.finished_at ? "took" : "runs for"} ${duration(between(row.started_at, row.finished_at))}`
      : "has not begun";
    const scope = this.#store.first?.scope;
    const words = [lasted, `created ${age(row.created_at)}`, scope && `scope ${scope}`].filter(Boolean);
    if (!this.#times.firstChild)
      this.#times.append(h("code", { title: "The pipeline's id" }, row.pipeline_id), h("span", {}));
    setText(this.#times.lastChild, ` ${words.join(" · ")}`);
    setAttribute(this.#times.lastChild, "title", date(row.created_at));
  }

  #drawLegend(row) {
    const present = STATES.filter((state) => row[state]);
    const key = present.join();
    if (this.#legend.dataset.key !== key) {
      this.#legend.dataset.key = key;
      this.#legend.replaceChildren(
        ...present.map((state) =>
          h(
            "li",
            {},
            h(
              "a",
              { href: address.to({ pipeline: this.#id, tab: "jobs", state }), "data-view": true, class: `is-${state}` },
              shape(state),
              h("span", {}),
            ),
          ),
        ),
      );
    }
    present.forEach((state, index) =>
      setText(this.#legend.children[index].firstChild.lastChild, `${number(row[state])} ${state}`),
    );
  }

  /** What runs and where; or, when nothing does, why. */
  #drawNow(row) {
    const running = [...this.#store.jobs.values()].filter((job) => job.state === "running");
    this.#askWhy(row, running);
    const some = running.slice(0, RUNNING_SHOWN);
    const lines = some.map((job) => {
      const line =
        this.#runs.get(job.id) ??
        h(
          "p",
          {},
          shape("running"),
          h("a", { "data-view": true }, `${job.job_type ?? "(adopted row)"} #${job.id}`),
          h("span", { class: "muted" }),
        );
      this.#runs.set(job.id, line);
      setAttribute(line.children[1], "href", address.to({ ...this.#params, job: job.id }));
      const progress = job.progress === null ? "" : `${percent(job.progress)} % · `;
      setText(
        line.lastChild,
        `${progress}on ${job.locked_by ?? "?"} for ${duration(between(job.locked_at))}${job.status_message ? ` · ${job.status_message}` : ""}`,
      );
      return line;
    });
    const shown = new Set(some.map((job) => job.id));
    for (const id of this.#runs.keys()) if (!shown.has(id)) this.#runs.delete(id);
    if (running.length > some.length) {
      lines.push(
        h(
          "p",
          { class: "muted" },
          h(
            "a",
            { "data-view": true, href: address.to({ pipeline: this.#id, tab: "jobs", state: "running" }) },
            `and ${number(running.length - some.length)} more`,
          ),
        ),
      );
    }
    if (!running.length && this.#why) {
      setAttribute(this.#why.querySelector("a"), "href", address.to({ ...this.#params, job: this.#whyOf }));
      lines.push(this.#why);
    }
    this.#now.hidden = !lines.length;
    setChildren(this.#now, lines);
  }

  #askWhy(row, running) {
    // Adopted rows are pending for ever, and never next.
    const open =
      row.state === "running" && !running.length
        ? [...this.#store.jobs.values()].filter((job) => job.job_type !== null)
        : [];
    const next = open.find((job) => job.state === "pending") ?? open.find((job) => job.state === "waiting");
    if ((next?.id ?? null) === this.#whyOf) return;
    this.#whyOf = next?.id ?? null;
    this.#why = null;
    clearTimeout(this.#whyTimer);
    // Between two jobs there is always a moment with none: that needs no explanation.
    if (next) this.#whyTimer = setTimeout(() => this.#loadWhy(next), 1500);
  }

  async #loadWhy(job) {
    try {
      const { reasons } = await api.get(`v1/jobs/${job.id}/why`);
      if (this.#whyOf !== job.id) return;
      this.#why = h(
        "p",
        { class: "why-now" },
        "Nothing runs. ",
        h("a", { "data-view": true }, `${job.job_type ?? "(adopted row)"} #${job.id}`),
        ` is next: ${reasons.map((reason) => reason.message).join(" ")}`,
      );
      this.#frame.request();
    } catch {
      // The stream's own sign says that the server is away.
    }
    if (this.#whyOf === job.id) this.#whyTimer = setTimeout(() => this.#loadWhy(job), 5000);
  }
}
