// One stream of events from the server, for as long as a view is open.
//
// EventSource would reconnect by itself, but with the address it began with: an old cursor and an expired token. So each
// connection is closed at its first error, and the next one is ours.

import * as api from "./api.js";

const QUIET = 2000; // nothing for so long after opening: there was nothing to catch up with
const LONGEST = 15000;
const HIDDEN = 60000; // browsers allow six streams per host over HTTP/1.1: a tab nobody looks at gives its own back
const NAMES = ["snapshot", "job", "step", "pipeline", "end", "reset"];

export class Stream {
  #path;
  #pipeline;
  #needsToken;
  #on;
  #source = null;
  #cursor = null;
  #failures = 0;
  #timer = null;
  #state = null;
  #closed = false;
  #opened = 0;
  #asleep = null;
  #tick = null;
  #lastTick = Date.now();

  /** `on.event(name, data)` for each event; `on.state(state, facts)`: connecting, catching up, live, stale, reconnecting, paused, gone. */
  constructor(path, { pipeline = null, needsToken = false, on }) {
    this.#path = path;
    this.#pipeline = pipeline;
    this.#needsToken = needsToken;
    this.#on = on;
    for (const [name, listener] of this.#listeners)
      (name === "visibilitychange" ? document : window).addEventListener(name, listener);
    // A machine that slept may hold a connection that is dead and does not know it.
    this.#tick = setInterval(() => {
      if (Date.now() - this.#lastTick > 40000 && this.#source) this.retry();
      this.#lastTick = Date.now();
    }, 10000);
    this.#connect();
    // Tabs can be opened in the background, and are not told that they are there.
    if (document.hidden) this.#seen();
  }

  #listeners = [
    ["online", () => this.#state !== "paused" && this.retry()],
    ["pagehide", () => this.#drop()],
    ["pageshow", (event) => event.persisted && this.retry()],
    ["visibilitychange", () => this.#seen()],
  ];

  close() {
    this.#closed = true;
    this.#drop();
    clearInterval(this.#tick);
    clearTimeout(this.#asleep);
    for (const [name, listener] of this.#listeners)
      (name === "visibilitychange" ? document : window).removeEventListener(name, listener);
  }

  /** At once, instead of after the wait. */
  retry() {
    this.#drop();
    if (!this.#closed) this.#connect();
  }

  /** Also what is still on its way: an address, or the reason of a failure. */
  #drop() {
    this.#opened += 1;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #seen() {
    clearTimeout(this.#asleep);
    if (document.hidden) {
      this.#asleep = setTimeout(() => {
        this.#drop();
        this.#tell("paused");
      }, HIDDEN);
    } else if (this.#state === "paused") {
      this.retry();
    }
  }

  async #connect() {
    const attempt = ++this.#opened;
    this.#tell(this.#failures || this.#cursor ? "reconnecting" : "connecting");
    try {
      const query = new URLSearchParams({ follow: "1" });
      if (this.#cursor) query.set("last_event_id", this.#cursor);
      if (this.#needsToken)
        query.set("token", (await api.post("v1/stream-tokens", { pipeline_id: this.#pipeline })).token);
      if (this.#closed || attempt !== this.#opened) return;
      this.#open(`${this.#path}?${query}`);
    } catch (error) {
      if (attempt === this.#opened) this.#failed(error);
    }
  }

  #open(address) {
    const source = new EventSource(address);
    this.#source = source;
    source.onopen = () => {
      this.#tell("catching up");
      this.#timer = setTimeout(() => this.#live(), QUIET);
    };
    source.onerror = () => {
      if (this.#source !== source) return;
      this.#drop();
      this.#diagnose(address);
    };
    source.addEventListener("stale", (event) => {
      if (this.#source !== source) return;
      clearTimeout(this.#timer);
      this.#tell("stale", { words: `The server is here, but ${JSON.parse(event.data).reason}.` });
    });
    source.addEventListener("fresh", () => this.#source === source && this.#live());
    for (const name of NAMES) {
      source.addEventListener(name, (event) => {
        if (this.#source !== source) return;
        this.#on.event(name, JSON.parse(event.data));
        // An event without an id of its own carries the one before it, which is what to continue from.
        if (event.lastEventId) this.#cursor = event.lastEventId;
        if (name === "snapshot" || name === "pipeline") this.#live();
      });
    }
  }

  #live() {
    clearTimeout(this.#timer);
    this.#failures = 0;
    this.#tell("live");
  }

  /** An EventSource does not say why it failed; the same request by other means does. */
  async #diagnose(address) {
    this.#tell("reconnecting");
    const attempt = this.#opened;
    const problem = await api.probe(address);
    if (attempt === this.#opened && !this.#closed) this.#failed(problem);
  }

  #failed(error) {
    if (this.#closed) return;
    // In our server's own words: a proxy that nobody is behind says 404, too.
    if (error instanceof api.Refused && error.problem.detail && [400, 403, 404, 422].includes(error.status)) {
      this.#tell("gone", { words: error.words });
      return;
    }
    if (error?.status === 401) {
      // A new stream token is all it needs; servers can begin to want them while a page is open.
      this.#needsToken = true;
      error = null;
    }
    // The first try comes at once-ish; later ones are spread, so that a server that returns is not met by all at once.
    const wait = Math.min(LONGEST, 500 * 2 ** this.#failures) * (0.5 + Math.random() / 2);
    this.#failures += 1;
    this.#tell("reconnecting", { retryAt: Date.now() + wait, words: error?.words ?? error?.message });
    this.#timer = setTimeout(() => this.#connect(), wait);
  }

  #tell(state, facts = {}) {
    if (state === this.#state && !facts.retryAt) return;
    this.#state = state;
    this.#on.state(state, facts);
  }
}
