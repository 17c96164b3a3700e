// @ts-check
// One pipeline, live: its graph, jobs, timeline and errors.

import { pipelineButtons } from "./actions.js";
import { h, setAttribute, setChildren, setText } from "./dom.js";
import { Errors, jobsWithErrors } from "./errors.js";
import { Graph } from "./graph.js";
import { JobPanel } from "./job.js";
import { Jobs } from "./jobs.js";
import { percent, stateBar } from "./progress-bar.js";
import { Redraw } from "./redraw.js";
import { hrefTo, navigate } from "./router.js";
import { RunningNow } from "./running-now.js";
import { badge, shape, STATES } from "./states.js";
import { PipelineStore } from "./store.js";
import { age, date, duration, number, secondsBetween } from "./time.js";
import { Timeline } from "./timeline.js";

/** @import { App, GraphNode, Params, Pipeline, PipelineEvent, Tab } from "./types.js" */

const TABS = { graph: "Graph", jobs: "Jobs", timeline: "Timeline", errors: "Errors" };
const LARGE = 1000; // jobs: drawing takes milliseconds, so a large pipeline is drawn at most four times a second
const LARGE_GAP_MS = 250;

/** @typedef {keyof typeof TABS} TabName */

export class PipelineView {
  #id;
  #params;
  #app;
  #store = new PipelineStore();
  #redraw;
  #stream;
  /**
   * Why the server refuses the stream.
   *
   * @type {string | null}
   */
  #unavailable = null;
  #state = badge("running");
  #title = h("h1", { tabindex: -1 }, "Loading …");
  #buttons;
  #bar = stateBar();
  #percent = h("b", { class: "percent" });
  #pipelineId = h("code", { title: "Pipeline id" });
  #times = h("span", {});
  #counts = h("ul", { class: "state-counts" });
  #runningNow;
  #tabLinks = {
    graph: h("a", { "data-view": true }, TABS.graph),
    jobs: h("a", { "data-view": true }, TABS.jobs),
    timeline: h("a", { "data-view": true }, TABS.timeline),
    errors: h("a", { "data-view": true }, TABS.errors),
  };
  /** @type {Record<TabName, Tab>} */
  #tabs;
  #content = h("div", { class: "content" });
  #panel;
  #split;
  #body;
  #empty = h("p", { class: "empty" }, "Loading …");

  /**
   * @param {HTMLElement} root
   * @param {Params} params
   * @param {App} app
   */
  constructor(root, params, app) {
    this.#id = params.pipeline ?? "";
    this.#params = params;
    this.#app = app;
    this.#buttons = pipelineButtons(app);
    this.#panel = new JobPanel(this.#store, app);
    const graph = new Graph(this.#store, (node) => this.#openNode(node));
    this.#tabs = {
      graph,
      jobs: new Jobs(this.#store, graph),
      timeline: new Timeline(this.#store),
      errors: new Errors(this.#store),
    };
    this.#redraw = new Redraw(
      () => this.#draw(),
      () => (this.#store.jobs.size > LARGE ? LARGE_GAP_MS : 0),
    );
    this.#runningNow = new RunningNow(this.#id, this.#store, () => this.#redraw.request());
    this.#split = h("div", { class: "split" }, this.#content, this.#panel.element);
    this.#body = h(
      "div",
      { hidden: true },
      h("p", { class: "times muted" }, this.#pipelineId, this.#times),
      h("div", { class: "overall" }, this.#bar.element, this.#percent),
      this.#counts,
      this.#runningNow.element,
      h("nav", { class: "tabs", "aria-label": "Pipeline" }, Object.values(this.#tabLinks)),
      this.#split,
    );
    root.append(
      h("div", { class: "heading" }, this.#title, this.#state.element, this.#buttons.element),
      this.#empty,
      this.#body,
    );
    this.#stream = app.openPipelineStream(
      this.#id,
      (event) => this.#onEvent(event),
      (message) => {
        this.#unavailable = message;
        this.#redraw.request();
      },
    );
    this.update(params);
  }

  /** @param {Params} params */
  update(params) {
    const isOpened = params.job && params.job !== this.#params.job;
    const isClosed = !params.job && this.#params.job;
    this.#params = params;
    setChildren(this.#content, [this.#tabs[this.#tab].element]);
    for (const [name, link] of Object.entries(this.#tabLinks)) {
      setAttribute(link, "href", hrefTo({ pipeline: this.#id, tab: name === "graph" ? null : name, job: params.job }));
      setAttribute(link, "aria-current", name === this.#tab ? "true" : null);
    }
    this.#draw();
    if (isOpened) this.#panel.focus();
    if (isClosed) this.#tabLinks[this.#tab].focus({ preventScroll: true });
  }

  close() {
    this.#stream.close();
    this.#redraw.close();
    this.#panel.close();
    this.#runningNow.close();
    for (const tab of Object.values(this.#tabs)) tab.close();
  }

  /** @returns {TabName} */
  get #tab() {
    const name = this.#params.tab;
    return name && Object.hasOwn(TABS, name) ? /** @type {TabName} */ (name) : "graph";
  }

  /** @param {GraphNode} node */
  #openNode(node) {
    if (node.jobs.length === 1) navigate({ ...this.#params, job: node.jobs[0] });
    else navigate({ pipeline: this.#id, tab: "jobs", group: node.key });
  }

  /** @param {PipelineEvent} event */
  #onEvent(event) {
    this.#store.apply(event);
    this.#unavailable = null;
    const isPipeline = event.name === "pipeline" || event.name === "snapshot";
    if (isPipeline && this.#store.pipeline) this.#setTitle(this.#store.pipeline);
    this.#redraw.request();
  }

  /**
   * Not part of drawing, since a hidden tab gets no frames.
   *
   * @param {Pipeline} pipeline
   */
  #setTitle({ state, progress }) {
    const name = this.#store.first?.job_type ?? "pipeline";
    this.#app.setTitle(`${state === "running" ? `${percent(progress)} %` : state} ${name}`);
  }

  #draw() {
    const { pipeline } = this.#store;
    this.#empty.hidden = this.#store.isLoaded && !this.#unavailable;
    this.#body.hidden = !this.#store.isLoaded;
    if (this.#unavailable) setText(this.#empty, this.#unavailable);
    this.#state.element.hidden = !pipeline;
    if (pipeline) this.#drawPipeline(pipeline);
    else if (this.#unavailable) setText(this.#title, "No such pipeline");
  }

  /** @param {Pipeline} pipeline */
  #drawPipeline(pipeline) {
    this.#state.set(pipeline.state);
    setText(this.#title, this.#store.first?.job_type ?? "Pipeline");
    this.#buttons.set(pipeline);
    this.#buttons.element.hidden = Boolean(this.#unavailable);
    this.#drawTimes(pipeline);
    this.#bar.set(pipeline);
    setText(this.#percent, `${percent(pipeline.progress)} %`);
    this.#drawCounts(pipeline);
    this.#runningNow.draw(pipeline, this.#params);
    const errors = jobsWithErrors(this.#store).length;
    setText(this.#tabLinks.jobs, `Jobs ${number(pipeline.jobs)}`);
    setText(this.#tabLinks.errors, errors ? `Errors ${number(errors)}` : "Errors");
    const selected = this.#params.job ? Number(this.#params.job) : null;
    this.#split.classList.toggle("with-job", selected !== null);
    this.#panel.show(selected, this.#params);
    this.#tabs[this.#tab].draw(this.#params);
    this.#panel.draw();
  }

  /** @param {Pipeline} pipeline */
  #drawTimes(pipeline) {
    const time = duration(secondsBetween(pipeline.started_at, pipeline.finished_at));
    const ran = pipeline.started_at ? `${pipeline.finished_at ? "took" : "running for"} ${time}` : "not started";
    const scope = this.#store.first?.scope;
    const parts = [ran, `created ${age(pipeline.created_at)}`, scope && `scope ${scope}`].filter(Boolean);
    setText(this.#pipelineId, pipeline.pipeline_id);
    setText(this.#times, ` ${parts.join(" · ")}`);
    setAttribute(this.#times, "title", date(pipeline.created_at));
  }

  /** @param {Pipeline} pipeline */
  #drawCounts(pipeline) {
    const present = STATES.filter((state) => pipeline[state]);
    const key = present.join();
    if (this.#counts.dataset.key !== key) {
      this.#counts.dataset.key = key;
      const items = present.map((state) => {
        const href = hrefTo({ pipeline: this.#id, tab: "jobs", state });
        const link = h("a", { href, "data-view": true, class: `is-${state}` }, shape(state), h("span", {}));
        return h("li", {}, link);
      });
      this.#counts.replaceChildren(...items);
    }
    const texts = this.#counts.querySelectorAll("span");
    present.forEach((state, index) => setText(texts[index], `${number(pipeline[state])} ${state}`));
  }
}
