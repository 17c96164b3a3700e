// @ts-check
// <reactor-progress pipeline="…">: a pipeline's progress, live, on any page. This file has no imports.

/** @import { Pipeline, PipelineState } from "./types.js" */

const HERE = new URL(".", import.meta.url).href;
const MAX_WAIT_MS = 15000;

const STYLE = `
  :host {
    display: block;
    font: inherit;
    color: inherit;
    --_track: var(--reactor-track, color-mix(in srgb, currentColor 14%, transparent));
    --_running: var(--reactor-running, #2f6fdb);
    --_completed: var(--reactor-completed, #1c8a4b);
    --_partial: var(--reactor-partial, #b97a0a);
    --_failed: var(--reactor-failed, #d13b3b);
    --_cancelled: var(--reactor-cancelled, #76808c);
  }
  :host([hidden]) { display: none; }
  .head { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1em; margin-bottom: .35em; }
  .words { font-variant-numeric: tabular-nums; }
  .track {
    height: var(--reactor-height, .5em);
    border-radius: var(--reactor-radius, 1em);
    background: var(--_track);
    overflow: hidden;
  }
  .track.away { opacity: .5; }
  .fill { height: 100%; width: 0; background: var(--_running); transition: width .3s; }
  .fill.completed { background: var(--_completed); }
  .fill.partial { background: var(--_partial); }
  .fill.failed { background: var(--_failed); }
  .fill.cancelled { background: var(--_cancelled); }
  @media (prefers-reduced-motion: reduce) { .fill { transition: none; } }
`;

// Every content security policy allows a constructed style sheet, but not a <style> element.
const sheet = new CSSStyleSheet();
sheet.replaceSync(STYLE);

/**
 * An element that host pages can style as `::part(name)`.
 *
 * @param {"div" | "span"} tag
 * @param {string} part
 */
function makePart(tag, part) {
  const element = document.createElement(tag);
  element.className = part;
  element.setAttribute("part", part);
  return element;
}

class ReactorProgress extends HTMLElement {
  static observedAttributes = ["pipeline", "token", "src", "follow", "label"];

  /** @type {EventSource | null} */
  #source = null;
  /** The id of the last event, from which the next connection continues. */
  #cursor = "";
  #failures = 0;
  /** @type {number | undefined} */
  #timer;
  /** @type {Pipeline | null} */
  #pipeline = null;
  #hasEnded = false;
  #isOpenScheduled = false;
  #isStale = false;
  #label = makePart("span", "label");
  #text = makePart("span", "words");
  #track = makePart("div", "track");
  #fill = makePart("div", "fill");

  constructor() {
    super();
    const head = makePart("div", "head");
    head.append(this.#label, this.#text);
    this.#track.setAttribute("role", "progressbar");
    this.#track.setAttribute("aria-valuemin", "0");
    this.#track.setAttribute("aria-valuemax", "100");
    this.#track.append(this.#fill);
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sheet];
    root.append(head, this.#track);
  }

  /** The newest state of the pipeline, or null. */
  get state() {
    return this.#pipeline;
  }

  get pipeline() {
    return this.getAttribute("pipeline");
  }

  set pipeline(id) {
    this.#setOrRemove("pipeline", id);
  }

  get token() {
    return this.getAttribute("token");
  }

  set token(token) {
    this.#setOrRemove("token", token);
  }

  connectedCallback() {
    this.#restart();
  }

  disconnectedCallback() {
    this.#disconnect();
  }

  /**
   * @param {string} name
   * @param {string | null} before
   * @param {string | null} after
   */
  attributeChangedCallback(name, before, after) {
    if (!this.isConnected || before === after) return;
    if (name === "label") this.#draw();
    else if (name === "token") this.#onNewToken();
    else this.#restart();
  }

  /**
   * @param {string} name
   * @param {string | null} value
   */
  #setOrRemove(name, value) {
    if (value === null) this.removeAttribute(name);
    else this.setAttribute(name, value);
  }

  /**
   * An open connection stays; the next one uses the new token. After the first failure the next one is opened at once.
   * After further failures it waits, or a page that answers each failure with a token would cause a busy loop.
   */
  #onNewToken() {
    const isDone = this.#hasEnded && !this.hasAttribute("follow");
    if (!this.#source && !isDone && this.#failures < 2) this.#reconnect();
  }

  /** From the beginning, e.g. for another pipeline. */
  #restart() {
    this.#cursor = "";
    this.#pipeline = null;
    this.#hasEnded = false;
    this.#failures = 0;
    this.#reconnect();
  }

  /** Pages often set several attributes one after the other: they share one connection. */
  #reconnect() {
    this.#disconnect();
    this.#draw();
    if (this.#isOpenScheduled) return;
    this.#isOpenScheduled = true;
    queueMicrotask(() => {
      this.#isOpenScheduled = false;
      if (this.isConnected && !this.#source) this.#open();
    });
  }

  #disconnect() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    this.#isStale = false;
  }

  #open() {
    if (!this.pipeline) return;
    const source = new EventSource(this.#address(this.pipeline));
    this.#source = source;
    // Without changes since the cursor, no event follows.
    source.onopen = () => {
      this.#failures = 0;
      this.#draw();
    };
    source.onerror = () => this.#onFailure();
    source.addEventListener("snapshot", (event) => this.#onPipeline(event, JSON.parse(event.data).pipeline));
    source.addEventListener("pipeline", (event) => this.#onPipeline(event, JSON.parse(event.data)));
    source.addEventListener("stale", () => this.#setStale(true));
    source.addEventListener("fresh", () => this.#setStale(false));
    source.addEventListener("end", (event) => this.#onEnd(JSON.parse(event.data).state));
  }

  /** @param {string} pipeline */
  #address(pipeline) {
    const base = new URL(this.getAttribute("src") ?? HERE, document.baseURI).href.replace(/\/?$/, "/");
    const address = new URL(`v1/pipelines/${encodeURIComponent(pipeline)}/events`, base);
    if (this.#cursor) address.searchParams.set("last_event_id", this.#cursor);
    if (this.token) address.searchParams.set("token", this.token);
    if (this.hasAttribute("follow")) address.searchParams.set("follow", "1");
    return address;
  }

  /** @param {boolean} isStale */
  #setStale(isStale) {
    this.#isStale = isStale;
    this.#draw();
  }

  /**
   * @param {MessageEvent<string>} event
   * @param {Pipeline} pipeline
   */
  #onPipeline(event, pipeline) {
    if (event.lastEventId) this.#cursor = event.lastEventId;
    this.#pipeline = pipeline;
    if (pipeline.state === "running") this.#hasEnded = false;
    this.#draw();
    this.#dispatch("progress", pipeline);
  }

  /** @param {PipelineState} state */
  #onEnd(state) {
    // Without `follow` the server closes the stream now, and EventSource would reconnect.
    if (!this.hasAttribute("follow")) this.#disconnect();
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#dispatch("end", { ...this.#pipeline, state });
  }

  #onFailure() {
    this.#disconnect();
    this.#failures += 1;
    this.#draw();
    const wait = Math.min(MAX_WAIT_MS, 500 * 2 ** this.#failures) * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(() => this.#open(), wait);
    this.#dispatch("error", {
      message: "The server does not answer, or refuses the stream.",
      retryInSeconds: wait / 1000,
    });
    // Stream tokens are valid for a minute: the page may have to get a new one.
    if (this.token || this.#failures > 1) this.#dispatch("tokenneeded", { pipeline: this.pipeline });
  }

  /**
   * @param {string} name
   * @param {object} detail
   */
  #dispatch(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  #draw() {
    const pipeline = this.#pipeline;
    // In floating point, 29 of 100 is 28.999999999999996 %.
    const percent = pipeline ? Math.floor(pipeline.progress * 100 + 1e-6) : 0;
    const isAway = this.#failures > 0 || this.#isStale;
    const note = this.#isStale ? " (stale)" : isAway ? " (reconnecting)" : "";
    const text = (pipeline ? describe(pipeline, percent) : "…") + note;
    this.#label.textContent = this.getAttribute("label") ?? "";
    this.#text.textContent = text;
    this.#fill.className = `fill ${pipeline?.state ?? ""}`;
    this.#fill.style.width = `${pipeline ? pipeline.progress * 100 : 0}%`;
    this.#track.className = isAway ? "track away" : "track";
    this.#track.setAttribute("aria-valuenow", String(percent));
    this.#track.setAttribute("aria-label", this.getAttribute("label") ?? "Progress");
    this.#track.setAttribute("aria-valuetext", text);
    this.toggleAttribute("data-away", isAway);
    this.#setOrRemove("data-state", pipeline?.state ?? null);
  }
}

/**
 * @param {Pipeline} pipeline
 * @param {number} percent
 */
function describe({ state, jobs, completed, failed, partial }, percent) {
  const parts = [state === "running" ? `${percent} %` : state, `${completed + partial} of ${jobs} jobs`];
  if (failed) parts.push(`${failed} failed`);
  return parts.join(" · ");
}

if (!customElements.get("reactor-progress")) customElements.define("reactor-progress", ReactorProgress);
