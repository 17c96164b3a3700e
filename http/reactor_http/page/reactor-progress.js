// <reactor-progress pipeline="…">: a pipeline's progress, live, on anybody's page. This file is all it needs.

const HERE = new URL(".", import.meta.url).href;
const LONGEST = 15000;

const STYLE = `
  :host { display: block; font: inherit; color: inherit;
    --_track: var(--reactor-track, color-mix(in srgb, currentColor 14%, transparent));
    --_running: var(--reactor-running, #2f6fdb); --_completed: var(--reactor-completed, #1c8a4b);
    --_partial: var(--reactor-partial, #b97a0a); --_failed: var(--reactor-failed, #d13b3b); --_cancelled: var(--reactor-cancelled, #76808c); }
  :host([hidden]) { display: none; }
  .head { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1em; margin-bottom: .35em; }
  .words { font-variant-numeric: tabular-nums; }
  .track { height: var(--reactor-height, .5em); border-radius: var(--reactor-radius, 1em); background: var(--_track); overflow: hidden; }
  .fill { height: 100%; width: 0; background: var(--_running); transition: width .3s; }
  .fill.completed { background: var(--_completed); } .fill.partial { background: var(--_partial); }
  .fill.failed { background: var(--_failed); } .fill.cancelled { background: var(--_cancelled); }
  .track.away { opacity: .5; }
  @media (prefers-reduced-motion: reduce) { .fill { transition: none; } }
`;

// A style sheet made this way is allowed by every content security policy; a <style> element is not.
const sheet = new CSSStyleSheet();
sheet.replaceSync(STYLE);

function element(name, part, kind = part) {
  const made = document.createElement(name);
  made.className = kind;
  made.setAttribute("part", part);
  return made;
}

class ReactorProgress extends HTMLElement {
  static observedAttributes = ["pipeline", "token", "src", "follow", "label"];

  #source = null;
  #cursor = null;
  #failures = 0;
  #timer = null;
  #pipeline = null;
  #ended = false;
  #soon = false;
  #stale = false;
  #label;
  #words;
  #track;
  #fill;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sheet];
    this.#label = element("span", "label");
    this.#words = element("span", "words");
    this.#track = element("div", "track");
    this.#fill = element("div", "fill");
    const head = element("div", "head");
    this.#track.setAttribute("role", "progressbar");
    this.#track.setAttribute("aria-valuemin", "0");
    this.#track.setAttribute("aria-valuemax", "100");
    this.#track.append(this.#fill);
    head.append(this.#label, this.#words);
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
    this.setAttribute("pipeline", id);
  }
  get token() {
    return this.getAttribute("token");
  }
  set token(token) {
    this.setAttribute("token", token);
  }

  connectedCallback() {
    this.#restart();
  }
  disconnectedCallback() {
    this.#stop();
  }

  attributeChangedCallback(name, before, after) {
    if (!this.isConnected || before === after) return;
    if (name === "label") this.#draw();
    // A new token serves the next connection; one that is open stays. It may be all that was missing, and is tried at
    // once; if that fails, too, the wait stands, or whoever answers each failure with a token would never let us rest.
    else if (name === "token") {
      if (!this.#source && !this.#isDone && this.#failures < 2) this.#restart(false);
    } else this.#restart();
  }

  get #isDone() {
    return this.#ended && !this.hasAttribute("follow");
  }

  /** Several attributes are often set one after the other: one connection for all. */
  #restart(anew = true) {
    this.#stop();
    if (anew) {
      this.#cursor = null;
      this.#pipeline = null;
      this.#ended = false;
      this.#failures = 0;
    }
    this.#draw();
    if (this.#soon) return;
    this.#soon = true;
    queueMicrotask(() => {
      this.#soon = false;
      if (this.isConnected && this.pipeline && !this.#source) this.#open();
    });
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    this.#stale = false;
  }

  #open() {
    const base = new URL(this.getAttribute("src") ?? HERE, document.baseURI).href.replace(/\/?$/, "/");
    const address = new URL(`v1/pipelines/${encodeURIComponent(this.pipeline)}/events`, base);
    if (this.#cursor) address.searchParams.set("last_event_id", this.#cursor);
    if (this.token) address.searchParams.set("token", this.token);
    if (this.hasAttribute("follow")) address.searchParams.set("follow", "1");
    const source = new EventSource(address);
    this.#source = source;
    // When nothing has happened meanwhile, nothing comes.
    source.onopen = () => {
      this.#failures = 0;
      this.#draw();
    };
    source.onerror = () => this.#failed();
    source.addEventListener("snapshot", (event) => this.#take(event, JSON.parse(event.data).pipeline));
    source.addEventListener("pipeline", (event) => this.#take(event, JSON.parse(event.data)));
    for (const name of ["stale", "fresh"])
      source.addEventListener(name, () => {
        this.#stale = name === "stale";
        this.#draw();
      });
    source.addEventListener("end", (event) => this.#end(JSON.parse(event.data)));
  }

  #take(event, pipeline) {
    if (event.lastEventId) this.#cursor = event.lastEventId;
    this.#pipeline = pipeline;
    if (pipeline.state === "running") this.#ended = false;
    this.#draw();
    this.#tell("progress", pipeline);
  }

  #end({ state }) {
    // Without `follow` the server closes now, and an EventSource left alone would come back to ask.
    if (!this.hasAttribute("follow")) this.#stop();
    if (this.#ended) return;
    this.#ended = true;
    this.#tell("end", { ...this.#pipeline, state });
  }

  #failed() {
    this.#stop();
    this.#failures += 1;
    this.#draw();
    const wait = Math.min(LONGEST, 500 * 2 ** this.#failures) * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(() => this.#open(), wait);
    this.#tell("error", { message: "The server does not answer, or refuses.", retryInSeconds: wait / 1000 });
    // Stream tokens live a minute: whoever minted the first is asked for the next.
    if (this.token || this.#failures > 1) this.#tell("tokenneeded", { pipeline: this.pipeline });
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  #draw() {
    const row = this.#pipeline;
    // 29 of 100 is 28.999999999999996 of them, as JavaScript reckons.
    const percent = row ? Math.floor(row.progress * 100 + 1e-6) : 0;
    const away = this.#failures > 0 || this.#stale;
    this.#label.textContent = this.getAttribute("label") ?? "";
    this.#words.textContent =
      (row ? words(row, percent) : "…") + (this.#stale ? " (stale)" : away ? " (reconnecting)" : "");
    this.#fill.className = `fill ${row?.state ?? ""}`;
    this.#fill.style.width = `${row ? row.progress * 100 : 0}%`;
    this.#track.className = away ? "track away" : "track";
    this.#track.setAttribute("aria-valuenow", String(percent));
    this.#track.setAttribute("aria-label", this.getAttribute("label") ?? "Progress");
    this.#track.setAttribute("aria-valuetext", this.#words.textContent);
    this.toggleAttribute("data-away", away);
    if (row) this.setAttribute("data-state", row.state);
    else this.removeAttribute("data-state");
  }
}

function words({ state, jobs, completed, failed, partial }, percent) {
  const parts =
    state === "running"
      ? [`${percent} %`, `${completed + partial} of ${jobs} jobs`]
      : [state, `${completed + partial} of ${jobs} jobs`];
  if (failed) parts.push(`${failed} failed`);
  return parts.join(" · ");
}

if (!customElements.get("reactor-progress")) customElements.define("reactor-progress", ReactorProgress);
