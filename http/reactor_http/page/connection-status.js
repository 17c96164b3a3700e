// @ts-check
// Shows whether the page is up to date: live, catching up, stale, reconnecting.

import { h, setText } from "./dom.js";
import { clock, now } from "./time.js";

/** @import { ConnectionDetails, ConnectionState } from "./types.js" */

/** @type {Record<ConnectionState, string>} */
const LABELS = {
  connecting: "Connecting",
  live: "Live",
  stale: "Stale",
  "catching up": "Catching up",
  reconnecting: "Reconnecting",
  paused: "Paused",
  unavailable: "Unavailable",
};

export class ConnectionStatus {
  #label = h("span", {}, "Connecting");
  #message = h("span", {});
  #button = h("button", { class: "button small", type: "button", click: () => this.#retry?.() }, "Retry now");
  /** @type {ConnectionState} */
  #state = "connecting";
  /** @type {ConnectionDetails} */
  #details = {};
  /**
   * When the data was last live.
   *
   * @type {number | null}
   */
  #liveUntil = null;
  /** @type {(() => void) | null} */
  #retry = null;
  #dot = h("i", { "aria-hidden": "true" });
  indicator = h("span", { class: "connection", role: "status", "data-state": "connecting" }, this.#dot, this.#label);
  banner = h("p", { class: "banner", hidden: true }, this.#message, this.#button);

  constructor() {
    setInterval(() => this.#draw(), 500);
  }

  /**
   * @param {ConnectionState} state
   * @param {ConnectionDetails} details
   * @param {() => void} retry called by the button
   */
  set(state, details, retry) {
    if (this.#state === "live" && state !== "live") this.#liveUntil = now();
    this.#state = state;
    this.#details = details;
    this.#retry = retry;
    this.#draw();
  }

  #draw() {
    this.indicator.dataset.state = this.#state;
    setText(this.#label, LABELS[this.#state]);
    this.banner.hidden = !this.#hasBanner();
    if (this.banner.hidden) return;
    this.#button.hidden = this.#state === "stale";
    const asOf = this.#liveUntil ? ` Data as of ${clock(this.#liveUntil)}.` : "";
    setText(this.#message, `${this.#details.message ?? "The connection was lost."}${asOf} ${this.#nextStep()}`);
  }

  /** A new attempt to connect shows no banner of its own, and does not hide the one of the failure before it. */
  #hasBanner() {
    if (this.#state === "stale") return true;
    return this.#state === "reconnecting" && (Boolean(this.#details.retryAt) || !this.banner.hidden);
  }

  #nextStep() {
    if (this.#state === "stale") return "This page updates when it answers again.";
    const seconds = Math.ceil(((this.#details.retryAt ?? 0) - Date.now()) / 1000);
    return seconds > 0 ? `Retrying in ${seconds} s.` : "Retrying …";
  }
}
