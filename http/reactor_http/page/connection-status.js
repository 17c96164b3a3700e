// Shows whether what is on the page is the present: live, catching up, stale, reconnecting.

import { h, setText } from "./dom.js";
import { clock, now } from "./time.js";

const WORDS = {
  connecting: "Connecting",
  live: "Live",
  stale: "Stale",
  "catching up": "Catching up",
  reconnecting: "Reconnecting",
  paused: "Paused",
  gone: "Not available",
};

export class ConnectionSign {
  #word = h("span", {}, "Connecting");
  #banner = h("p", { class: "banner", hidden: true });
  #said = h("span", {});
  #button = h("button", { class: "button small", type: "button", click: () => this.#retry?.() }, "Try now");
  #facts = {};
  #state = "connecting";
  #since = null;
  #retry = null;

  constructor() {
    this.sign = h(
      "span",
      { class: "connection", role: "status", "data-state": "connecting" },
      h("i", { "aria-hidden": "true" }),
      this.#word,
    );
    this.banner = this.#banner;
    this.#banner.append(this.#said, this.#button);
    setInterval(() => this.#draw(), 500);
  }

  /** `retry` is what the button does. */
  set(state, facts, retry) {
    if (this.#state === "live" && state !== "live") this.#since = now();
    this.#state = state;
    this.#facts = facts;
    this.#retry = retry;
    this.#draw();
  }

  #draw() {
    this.sign.dataset.state = this.#state;
    setText(this.#word, WORDS[this.#state]);
    // Refusals come with their reason, e.g. too many streams.
    const away = this.#state === "reconnecting" && Boolean(this.#facts.retryAt);
    const stale = this.#state === "stale";
    this.#banner.hidden = !away && !stale && !(this.#state === "reconnecting" && !this.#banner.hidden);
    if (this.#banner.hidden) return;
    this.#button.hidden = stale;
    const wait = Math.max(0, Math.ceil((this.#facts.retryAt - Date.now()) / 1000));
    const seen = this.#since ? ` What you see is from ${clock(this.#since)}.` : "";
    const next = stale ? "Its return will be told here." : wait ? `Trying again in ${wait} s.` : "Trying again …";
    setText(this.#said, `${this.#facts.words ?? "The connection was lost."}${seen} ${next}`);
  }
}
