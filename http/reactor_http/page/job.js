// @ts-check
// One job in full: progress, why it is not running, errors, attempts, steps and data.

import { jobButtons } from "./actions.js";
import * as api from "./api.js";
import { h, setAttribute, setContent, setText } from "./dom.js";
import { attemptsText, ranFor } from "./jobs.js";
import { Logs } from "./logs.js";
import { progressBar } from "./progress-bar.js";
import { hrefTo, navigate } from "./router.js";
import { badge, shape, TERMINAL } from "./states.js";
import { Steps } from "./steps.js";
import { age, date, duration, number, secondsBetween } from "./time.js";

/** @import { PipelineStore } from "./store.js" */
/** @import { App, Child, EarlierAttempt, JobDetails, Params, StoredJob, Why } from "./types.js" */

const MAX_DEPENDENCIES = 50;
const RELOAD_MS = 5000; // reasons and earlier attempts are not part of the stream
const NARROW = "(max-width: 60rem)"; // as in style.css: the panel stands below the list
// Reasons that need attention even though the job is running or has finished.
const ALARMS = ["worker_dead", "worker_silent", "handler_not_stopped"];

export class JobPanel {
  #store;
  /** @type {Params} */
  #params = {};
  /** @type {number | null} */
  #id = null;
  /** @type {JobDetails | null} */
  #details = null;
  /** @type {Why | null} */
  #why = null;
  /** @type {string | null} */
  #loadError = null;
  #loads = 0;
  /**
   * Of the row when the details were loaded; they are loaded again when it differs.
   *
   * @type {string | null}
   */
  #loadedFor = null;
  /** The data that the sections show, as JSON. */
  #drawnFacts = "";
  /** @type {number | undefined} */
  #timer;
  #state = badge("pending");
  #title = h("h2", { tabindex: -1 });
  #closeLink = h("a", { class: "button small", "data-view": true }, "Close");
  #buttons;
  #bar = progressBar("Progress");
  #message = h("p", { class: "message" });
  #facts = h("dl", { class: "facts" });
  #reasons = h("section", { class: "why", hidden: true });
  #error = h("section", { hidden: true });
  #attempts = h("section", { hidden: true });
  #dependencies = h("section", { hidden: true });
  #data = h("section", {});
  #logs = new Logs();
  #steps = new Steps((name) => this.#logs.setStep(name));

  /**
   * @param {PipelineStore} store
   * @param {App} app
   */
  constructor(store, app) {
    this.#store = store;
    this.#buttons = jobButtons(app);
    this.element = h(
      "aside",
      { class: "panel", "aria-label": "Job", hidden: true },
      h("div", { class: "panel-head" }, this.#state.element, this.#closeLink),
      this.#title,
      this.#bar.element,
      this.#message,
      this.#buttons.element,
      this.#reasons,
      this.#error,
      this.#steps.element,
      this.#logs.element,
      this.#facts,
      this.#attempts,
      this.#dependencies,
      this.#data,
    );
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") navigate({ ...this.#params, job: null });
    });
  }

  close() {
    clearTimeout(this.#timer);
    this.#logs.reset();
    this.#id = null;
  }

  /**
   * Shows the job with this id, or none. NaN: the address names no number.
   *
   * @param {number | null} id
   * @param {Params} params
   */
  show(id, params) {
    this.#params = params;
    setAttribute(this.#closeLink, "href", hrefTo({ ...params, job: null }));
    if (Object.is(id, this.#id)) return;
    clearTimeout(this.#timer);
    this.#id = id;
    this.#details = null;
    this.#why = null;
    this.#loadError = null;
    this.#loadedFor = null;
    this.#drawnFacts = "";
    this.#steps.reset();
    this.#logs.reset();
    const sections = [this.#reasons, this.#error, this.#attempts, this.#dependencies, this.#data];
    for (const section of sections) setSection(section, null);
    this.element.hidden = id === null;
    if (id !== null && Number.isSafeInteger(id)) this.#load(id);
  }

  focus() {
    this.#title.focus({ preventScroll: true });
    if (matchMedia(NARROW).matches) this.element.scrollIntoView({ block: "start" });
  }

  draw() {
    if (this.#id === null) return;
    const job = this.#store.jobs.get(this.#id);
    this.#state.element.hidden = !job;
    this.#buttons.element.hidden = !job;
    this.#facts.hidden = !job;
    if (job) this.#drawJob(job);
    else this.#drawMissing();
  }

  #drawMissing() {
    this.#bar.element.hidden = true;
    this.#steps.element.hidden = true;
    this.#logs.element.hidden = true;
    this.#message.hidden = false;
    setText(this.#title, `Job ${this.#params.job}`);
    setText(this.#message, this.#store.isLoaded ? "No such job in this pipeline." : "Loading …");
  }

  /** @param {StoredJob} job */
  #drawJob(job) {
    this.#reloadIfChanged(job);
    this.#state.set(job.state);
    setText(this.#title, `${job.job_type ?? "(adopted row)"} #${job.id}`);
    this.#bar.element.hidden = job.state !== "running" || job.progress === null;
    this.#bar.set(job.progress, job.state);
    setText(this.#message, job.status_message ?? "");
    this.#message.hidden = !job.status_message;
    this.#buttons.set(job);
    this.#drawFacts(job);
    this.#steps.set(this.#store.stepsOf(job.id));
    this.#logs.set(job);
    this.#drawSections(job);
  }

  /** @param {StoredJob} job */
  #reloadIfChanged(job) {
    const version = `${job.state} ${job.attempts} ${job.run_after} ${job.waiting_on} ${job.children}`;
    if (this.#loadedFor !== null && this.#loadedFor !== version) this.#load(job.id);
    this.#loadedFor = version;
  }

  /** @param {number} id */
  async #load(id) {
    clearTimeout(this.#timer);
    this.#loads += 1;
    const load = this.#loads;
    const isOutdated = () => id !== this.#id || load !== this.#loads;
    try {
      const [details, why] = await Promise.all([api.getJob(id), api.getWhy(id)]);
      if (isOutdated()) return;
      this.#details = details;
      this.#why = why;
      this.#loadError = null;
    } catch (error) {
      if (isOutdated()) return;
      this.#loadError = api.describe(error);
    }
    const job = this.#store.jobs.get(id);
    const isFinal = job && TERMINAL.has(job.state) && !this.#loadError && this.#details?.state === job.state;
    if (!isFinal) this.#timer = setTimeout(() => this.#load(id), RELOAD_MS);
    this.draw();
  }

  /** @param {StoredJob} job */
  #drawFacts(job) {
    const facts = factsOf(job, this.#details?.submitted_by);
    const names = facts.map(([name]) => name).join();
    if (this.#facts.dataset.names !== names) {
      this.#facts.dataset.names = names;
      this.#facts.replaceChildren(...facts.map(([name]) => h("div", {}, h("dt", {}, name), h("dd", {}))));
    }
    const values = this.#facts.querySelectorAll("dd");
    facts.forEach(([, value], index) => setText(values[index], value));
  }

  /** @param {StoredJob} job */
  #drawSections(job) {
    const dependencies = this.#listedDependencies;
    // Without what grows while nothing happens.
    const details = this.#details && { ...this.#details, durations: null, steps: null };
    const sources = [details, this.#why, this.#loadError, job.error, job.state, this.#params, dependencies];
    const facts = JSON.stringify(sources);
    if (facts === this.#drawnFacts) return;
    this.#drawnFacts = facts;
    this.#drawError(job);
    this.#drawReasons(job);
    if (this.#loadError) setSection(this.#data, "Details", h("p", { class: "danger" }, this.#loadError));
    if (!this.#details) return;
    this.#drawAttempts(this.#details.earlier_attempts);
    this.#drawDependencies(this.#details.dependencies.length);
    this.#drawData(this.#details);
  }

  /** @param {StoredJob} job */
  #drawError(job) {
    // The stream cuts long errors off; the details have all of it.
    const error = this.#details?.state === job.state ? this.#details.error : job.error;
    let heading = "Error";
    if (job.state === "cancelled") heading = "Reason for the cancellation";
    if (job.state === "pending" || job.state === "running") heading = "Last error";
    setSection(this.#error, error && heading, h("pre", { class: "error", tabindex: 0 }, error));
  }

  /** @param {StoredJob} job */
  #drawReasons(job) {
    const isDue = job.state !== "running" && !TERMINAL.has(job.state);
    const reasons = (this.#why?.reasons ?? []).filter(({ code }) => isDue || ALARMS.includes(code));
    const heading = isDue ? "Why it is not running" : "Needs attention";
    const items = reasons.map((reason) => h("li", {}, reason.message));
    setSection(this.#reasons, reasons.length > 0 && heading, h("ul", {}, items));
  }

  /** @param {EarlierAttempt[]} attempts */
  #drawAttempts(attempts) {
    const items = attempts.map((attempt) =>
      h(
        "li",
        {},
        h(
          "p",
          {},
          h("b", {}, `Attempt ${attempt.number}`),
          `: ${attempt.outcome} on ${attempt.pod ?? "?"}`,
          h("span", { class: "muted" }, ` ${attemptTime(attempt)}`),
        ),
        attempt.error && h("pre", { class: "error", tabindex: 0 }, attempt.error),
      ),
    );
    setSection(this.#attempts, attempts.length > 0 && "Earlier attempts", h("ol", { class: "attempts" }, items));
  }

  /** With the states that the stream sent: they are newer than the loaded ones. */
  get #listedDependencies() {
    const listed = this.#details?.dependencies.slice(0, MAX_DEPENDENCIES) ?? [];
    return listed.map((row) => ({ ...row, state: this.#store.jobs.get(row.depends_on)?.state ?? row.state }));
  }

  /** @param {number} count */
  #drawDependencies(count) {
    const listed = this.#listedDependencies;
    const items = listed.map(({ depends_on, needs, state }) => {
      const other = this.#store.jobs.get(depends_on);
      const name = `${other?.job_type ?? "job"} #${depends_on}`;
      const href = hrefTo({ ...this.#params, job: depends_on });
      const link = other ? h("a", { href, "data-view": true }, name) : name;
      const note = h("span", { class: "muted" }, needs === "finished" ? " (in any terminal state)" : "");
      return h("li", {}, shape(state, state), " ", link, note);
    });
    const more = count > listed.length && h("p", { class: "muted" }, `and ${number(count - listed.length)} more`);
    setSection(this.#dependencies, count > 0 && "Depends on", h("ul", { class: "plain-list" }, items), more);
  }

  /** @param {JobDetails} details */
  #drawData({ payload, result, meta }) {
    const isOpen = [...this.#data.querySelectorAll("details")].map((element) => element.open);
    /** @type {[string, Record<string, unknown> | null][]} */
    const values = [
      ["Payload", payload],
      ["Result", result],
      ["Meta", meta],
    ];
    const parts = values
      .filter(([, value]) => value && Object.keys(value).length)
      .map(([name, value], index) => {
        const json = h("pre", { class: "data", tabindex: 0, "aria-label": name }, JSON.stringify(value, null, 2));
        return h("details", { open: isOpen[index] ?? true }, h("summary", {}, name), json);
      });
    this.#data.hidden = false;
    this.#data.replaceChildren(...parts);
  }
}

/**
 * @param {StoredJob} job
 * @param {string} [submitter]
 * @returns {[name: string, value: string][]}
 */
function factsOf(job, submitter) {
  const scope = job.scope && `${job.scope}${job.is_current ? " (current)" : ""}`;
  const children = `${number(job.children)} ${job.children === 1 ? "job" : "jobs"}`;
  /** @type {[string, string | null | undefined | false][]} */
  const facts = [
    ["Pod", job.locked_by],
    ["Attempts", attemptsText(job)],
    ["Queue", job.queue],
    ["Priority", job.priority !== 0 && String(job.priority)],
    ["Scope", scope],
    ["Tags", job.tags.join(", ")],
    ["Submitter", submitter],
    ["Created", `${date(job.created_at)}, ${age(job.created_at)}`],
    ["Run after", job.run_after && job.state === "pending" && date(job.run_after)],
    ["Started", job.started_at && date(job.started_at)],
    ["Finished", job.finished_at && date(job.finished_at)],
    ["Duration", ranFor(job)],
    ["Children", job.children > 0 && children],
  ];
  return facts.flatMap(([name, value]) => (value ? [[name, value]] : []));
}

/** @param {EarlierAttempt} attempt */
function attemptTime({ started_at, ended_at }) {
  if (!started_at) return date(ended_at);
  return `${date(started_at)}, after ${duration(secondsBetween(started_at, ended_at))}`;
}

/**
 * Without a heading the section is hidden.
 *
 * @param {HTMLElement} section
 * @param {string | null | false | ""} heading
 * @param {...Child} content
 */
function setSection(section, heading, ...content) {
  section.hidden = !heading;
  setContent(section, heading && [h("h3", {}, heading), content]);
}
