// @ts-check
// One stream of server-sent events, open as long as its view.
//
// EventSource reconnects with the address it was created with: an old cursor and an expired token. So each connection
// is closed at its first error, and this class opens the next one.

import * as api from "./api.js";

/** @import { ConnectionDetails, ConnectionState } from "./types.js" */

const QUIET_MS = 2000; // without an event for this long after opening, there was nothing to catch up with
const MAX_WAIT_MS = 15000;
const HIDDEN_MS = 60000; // browsers allow six streams per host over HTTP/1.1: a hidden tab gives its stream back
const TICK_MS = 10000;
const SLEEP_MS = 40000; // a tick later than this means that the machine slept
const PERMANENT = [400, 403, 404, 422];
const EVENTS = ["snapshot", "job", "step", "pipeline", "end", "reset"];

/**
 * @typedef {object} StreamOptions
 * @property {string | null} pipelineId null: the stream of all pipelines
 * @property {boolean} needsToken
 * @property {(name: string, data: unknown) => void} onEvent
 * @property {(state: ConnectionState, details: ConnectionDetails) => void} onState
 */

export class Stream {
  #path;
  #pipelineId;
  #needsToken;
  #onEvent;
  #onState;
  /** @type {EventSource | null} */
  #source = null;
  /** The id of the last event, from which the next connection continues. */
  #cursor = "";
  /** @type {ConnectionState | null} */
  #state = null;
  #failures = 0;
  #isClosed = false;
  /** Grows with each connection: callbacks of earlier connections are ignored. */
  #attempt = 0;
  #lastTick = Date.now();
  /** @type {number | undefined} */
  #timer;
  /** @type {number | undefined} */
  #hiddenTimer;
  #tickTimer;
  #listeners = new AbortController();

  /**
   * @param {string} path
   * @param {StreamOptions} options
   */
  constructor(path, { pipelineId, needsToken, onEvent, onState }) {
    this.#path = path;
    this.#pipelineId = pipelineId;
    this.#needsToken = needsToken;
    this.#onEvent = onEvent;
    this.#onState = onState;
    this.#tickTimer = setInterval(() => this.#checkForSleep(), TICK_MS);
    this.#listen();
    this.#connect();
    // A tab that is opened in the background gets no visibilitychange event.
    if (document.hidden) this.#onVisibility();
  }

  close() {
    this.#isClosed = true;
    this.#disconnect();
    clearInterval(this.#tickTimer);
    clearTimeout(this.#hiddenTimer);
    this.#listeners.abort();
  }

  /** Connects now, instead of after the wait. */
  retry() {
    this.#disconnect();
    if (!this.#isClosed) this.#connect();
  }

  #listen() {
    const { signal } = this.#listeners;
    addEventListener("online", () => this.#state !== "paused" && this.retry(), { signal });
    addEventListener("pagehide", () => this.#disconnect(), { signal });
    addEventListener("pageshow", (event) => event.persisted && this.retry(), { signal });
    document.addEventListener("visibilitychange", () => this.#onVisibility(), { signal });
  }

  /** After a sleep of the machine a connection may be dead without an error. */
  #checkForSleep() {
    if (Date.now() - this.#lastTick > SLEEP_MS && this.#source) this.retry();
    this.#lastTick = Date.now();
  }

  #onVisibility() {
    clearTimeout(this.#hiddenTimer);
    if (document.hidden) {
      this.#hiddenTimer = setTimeout(() => {
        this.#disconnect();
        this.#setState("paused");
      }, HIDDEN_MS);
    } else if (this.#state === "paused") {
      this.retry();
    }
  }

  /** Also invalidates requests that are under way. */
  #disconnect() {
    this.#attempt += 1;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  async #connect() {
    const attempt = ++this.#attempt;
    this.#setState(this.#failures || this.#cursor ? "reconnecting" : "connecting");
    try {
      const query = new URLSearchParams({ follow: "1" });
      if (this.#cursor) query.set("last_event_id", this.#cursor);
      if (this.#needsToken) query.set("token", (await api.createStreamToken(this.#pipelineId)).token);
      if (!this.#isClosed && attempt === this.#attempt) this.#open(`${this.#path}?${query}`);
    } catch (error) {
      if (attempt === this.#attempt) this.#onFailure(error);
    }
  }

  /** @param {string} address */
  #open(address) {
    const source = new EventSource(address);
    this.#source = source;
    const isCurrent = () => this.#source === source;
    source.onopen = () => {
      this.#setState("catching up");
      this.#timer = setTimeout(() => this.#setLive(), QUIET_MS);
    };
    source.onerror = () => {
      if (!isCurrent()) return;
      this.#disconnect();
      this.#diagnose(address);
    };
    source.addEventListener("stale", (event) => isCurrent() && this.#setStale(JSON.parse(event.data).reason));
    source.addEventListener("fresh", () => isCurrent() && this.#setLive());
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => isCurrent() && this.#receive(name, event));
    }
  }

  /**
   * @param {string} name
   * @param {MessageEvent<string>} event
   */
  #receive(name, event) {
    this.#onEvent(name, JSON.parse(event.data));
    // An event without an id of its own carries the previous one, which is the cursor to continue from.
    if (event.lastEventId) this.#cursor = event.lastEventId;
    if (name === "snapshot" || name === "pipeline") this.#setLive();
  }

  #setLive() {
    clearTimeout(this.#timer);
    this.#failures = 0;
    this.#setState("live");
  }

  /** @param {string} reason */
  #setStale(reason) {
    clearTimeout(this.#timer);
    this.#setState("stale", { message: `The server answers, but ${reason}.` });
  }

  /**
   * An EventSource does not say why it failed; the same request by fetch does.
   *
   * @param {string} address
   */
  async #diagnose(address) {
    this.#setState("reconnecting");
    const attempt = this.#attempt;
    const error = await api.probe(address);
    if (attempt === this.#attempt && !this.#isClosed) this.#onFailure(error);
  }

  /** @param {unknown} error null: the stream can be opened now */
  #onFailure(error) {
    if (this.#isClosed) return;
    const refused = error instanceof api.Refused ? error : null;
    // Only our server sends `detail`: a proxy without a server behind it answers 404, too.
    if (refused?.problem.detail && PERMANENT.includes(refused.status)) {
      this.#setState("unavailable", { message: refused.description });
      return;
    }
    // A new stream token is enough; a server can start to require them while the page is open.
    const needsNewToken = refused?.status === 401;
    this.#needsToken ||= needsNewToken;
    // Random waits, so that a server that returns is not met by all clients at once.
    const wait = Math.min(MAX_WAIT_MS, 500 * 2 ** this.#failures) * (0.5 + Math.random() / 2);
    this.#failures += 1;
    const message = error === null || needsNewToken ? undefined : api.describe(error);
    this.#setState("reconnecting", { retryAt: Date.now() + wait, message });
    this.#timer = setTimeout(() => this.#connect(), wait);
  }

  /**
   * @param {ConnectionState} state
   * @param {ConnectionDetails} [details]
   */
  #setState(state, details = {}) {
    if (state === this.#state && !details.retryAt) return;
    this.#state = state;
    this.#onState(state, details);
  }
}
