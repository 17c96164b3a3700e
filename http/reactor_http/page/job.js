// One job in full: what it does, why it does not, its errors, attempts, steps and data.

import * as address from "./router.js";
import * as api from "./api.js";
import { jobButtons } from "./actions.js";
import { bar } from "./progress-bar.js";
import { h, setAttribute, setText } from "./dom.js";
import { badge, ENDED, shape } from "./states.js";
import { Steps } from "./steps.js";
import { age, between, date, duration, number } from "./time.js";

const NEEDED_SHOWN = 50;
const AGAIN = 5000; // what only the server knows (why, attempts) is asked for again after so long

export class JobPanel {
  #store;
  #id = null;
  #full = null;
  #why = null;
  #failure = null;
  #seen = null;
  #timer = null;
  #params = {};
  #drawn = "";
  #asked = 0;
  #state = badge("pending");
  #title = h("h2", { tabindex: -1 });
  #close = h("a", { class: "button small", "data-view": true }, "Close");
  #buttons;
  #bar = bar("progress");
  #message = h("p", { class: "message" });
  #facts = h("dl", { class: "facts" });
  #reasons = h("section", { class: "why", hidden: true });
  #error = h("section", { hidden: true });
  #attempts = h("section", { hidden: true });
  #needs = h("section", { hidden: true });
  #data = h("section", {});
  #steps = new Steps();

  constructor(store, app) {
    this.#store = store;
    this.#buttons = jobButtons(app);
    this.element = h(
      "aside",
      { class: "panel", "aria-label": "Job", hidden: true },
      h("div", { class: "panel-head" }, this.#state.element, this.#close),
      this.#title,
      this.#bar.element,
      this.#message,
      this.#buttons.element,
      this.#reasons,
      this.#error,
      this.#steps.element,
      this.#facts,
      this.#attempts,
      this.#needs,
      this.#data,
    );
    this.element.addEventListener(
      "keydown",
      (event) => event.key === "Escape" && address.go({ ...this.#params, job: null }),
    );
  }

  close() {
    clearTimeout(this.#timer);
    this.#id = null;
  }

  /** The job with this number, or none. */
  show(id, params) {
    this.#params = params;
    setAttribute(this.#close, "href", address.to({ ...params, job: null }));
    if (Object.is(id, this.#id)) return;
    clearTimeout(this.#timer);
    this.#id = id;
    this.#full = this.#why = this.#failure = this.#seen = null;
    this.#drawn = "";
    this.#steps.reset();
    for (const section of [this.#reasons, this.#error, this.#attempts, this.#needs, this.#data]) fill(section, null);
    this.element.hidden = id === null;
    if (Number.isSafeInteger(id)) this.#load();
  }

  focus() {
    this.#title.focus({ preventScroll: true });
    if (matchMedia("(max-width: 60rem)").matches) this.element.scrollIntoView({ block: "start" });
  }

  draw() {
    if (this.#id === null) return;
    const row = this.#store.jobs.get(this.#id);
    for (const part of [this.#state.element, this.#buttons.element, this.#facts]) part.hidden = !row;
    if (!row) {
      this.#bar.element.hidden = this.#steps.element.hidden = true;
      this.#message.hidden = false;
      setText(this.#title, `Job ${this.#params.job}`);
      setText(this.#message, this.#store.known ? "There is no such job in this pipeline." : "Loading …");
      return;
    }
    const seen = `${row.state} ${row.attempts} ${row.run_after} ${row.waiting_on} ${row.children}`;
    if (this.#seen !== null && this.#seen !== seen) this.#load();
    this.#seen = seen;
    this.#state.set(row.state);
    setText(this.#title, `${row.job_type ?? "(adopted row)"} #${row.id}`);
    this.#bar.element.hidden = row.state !== "running" || row.progress === null;
    this.#bar.set(row.progress ?? 0, row.state);
    setText(this.#message, row.status_message ?? "");
    this.#message.hidden = !row.status_message;
    this.#buttons.set(row);
    this.#drawFacts(row);
    this.#steps.set(this.#store.stepsOf(row.id));
    this.#drawFull(row);
  }

  async #load() {
    clearTimeout(this.#timer);
    const id = this.#id;
    const asked = (this.#asked += 1);
    try {
      const [full, why] = await Promise.all([api.get(`v1/jobs/${id}`), api.get(`v1/jobs/${id}/why`)]);
      if (id !== this.#id || asked !== this.#asked) return;
      this.#full = full;
      this.#why = why;
      this.#failure = null;
    } catch (error) {
      if (id !== this.#id || asked !== this.#asked) return;
      this.#failure = error.words ?? error.message;
    }
    const row = this.#store.jobs.get(id);
    if (!row || !ENDED.has(row.state) || this.#failure || this.#full.state !== row.state)
      this.#timer = setTimeout(() => this.#load(), AGAIN);
    this.draw();
  }

  #drawFacts(row) {
    const facts = [
      ["Pod", row.locked_by],
      ["Attempts", row.attempts ? `${row.attempts}${row.quota ? ` of ${row.quota}` : ""}` : null],
      ["Queue", row.queue],
      ["Priority", row.priority || null],
      ["Scope", row.scope && `${row.scope}${row.is_current ? " (current)" : ""}`],
      ["Tags", row.tags?.join(", ")],
      ["Created", `${date(row.created_at)}, ${age(row.created_at)}`],
      ["Not before", row.run_after && row.state === "pending" ? date(row.run_after) : null],
      ["Started", row.started_at && date(row.started_at)],
      ["Ended", row.finished_at && date(row.finished_at)],
      [
        "Ran for",
        row.started_at &&
          (row.finished_at || row.state === "running") &&
          duration(between(row.started_at, row.finished_at)),
      ],
      ["Chained", row.children ? `${number(row.children)} ${row.children === 1 ? "job" : "jobs"}` : null],
    ].filter(([, value]) => value);
    const same =
      this.#facts.childElementCount === facts.length &&
      facts.every(([name], index) => this.#facts.children[index].firstChild.textContent === name);
    if (!same) this.#facts.replaceChildren(...facts.map(([name]) => h("div", {}, h("dt", {}, name), h("dd", {}))));
    facts.forEach(([, value], index) => setText(this.#facts.children[index].lastChild, value));
  }

  #drawFull(row) {
    const facts = JSON.stringify([
      this.#full,
      this.#why,
      this.#failure,
      row.error,
      row.state,
      this.#params,
      this.#needed,
    ]);
    if (facts === this.#drawn) return;
    this.#drawn = facts;
    const error = this.#full?.state === row.state ? this.#full.error : row.error;
    fill(
      this.#error,
      error &&
        (row.state === "cancelled"
          ? "Why it was cancelled"
          : row.state === "pending" || row.state === "running"
            ? "Last error"
            : "Error"),
      error && [h("pre", { class: "error", tabindex: 0 }, error)],
    );
    const reasons =
      row.state === "running" || ENDED.has(row.state)
        ? this.#why?.reasons.filter(({ code }) => ["worker_dead", "handler_not_stopped"].includes(code))
        : this.#why?.reasons;
    fill(
      this.#reasons,
      reasons?.length && (row.state === "running" ? "Look at this" : "Why it does not run"),
      reasons?.length && [
        h(
          "ul",
          {},
          reasons.map((reason) => h("li", {}, reason.message)),
        ),
      ],
    );
    if (this.#failure) fill(this.#data, "Details", [h("p", { class: "wrong" }, this.#failure)]);
    if (!this.#full) return;
    this.#data.hidden = false;
    this.#drawAttempts();
    this.#drawNeeds();
    const { payload, result } = this.#full;
    const parts = [
      ["Payload", payload],
      ["Result", result],
    ].filter(([, value]) => value && Object.keys(value).length);
    const open = [...this.#data.querySelectorAll("details")].map((element) => element.open);
    this.#data.replaceChildren(
      ...parts.map(([name, value], index) =>
        h(
          "details",
          { open: open[index] ?? true },
          h("summary", {}, name),
          h("pre", { class: "data", tabindex: 0, "aria-label": name }, JSON.stringify(value, null, 2)),
        ),
      ),
    );
  }

  #drawAttempts() {
    const rows = this.#full.earlier_attempts ?? [];
    fill(
      this.#attempts,
      rows.length && "Earlier attempts",
      rows.length && [
        h(
          "ol",
          { class: "attempts" },
          rows.map((attempt) =>
            h(
              "li",
              {},
              h(
                "p",
                {},
                h("b", {}, `Attempt ${attempt.number}`),
                ` ${attempt.outcome} on ${attempt.pod ?? "?"}`,
                h(
                  "span",
                  { class: "muted" },
                  ` ${date(attempt.started_at ?? attempt.ended_at)}${attempt.started_at ? `, after ${duration(between(attempt.started_at, attempt.ended_at))}` : ""}`,
                ),
              ),
              attempt.error && h("pre", { class: "error", tabindex: 0 }, attempt.error),
            ),
          ),
        ),
      ],
    );
  }

  /** What it depends on, as the stream tells it: that is newer than what was asked for. */
  get #needed() {
    return (this.#full?.dependencies ?? [])
      .slice(0, NEEDED_SHOWN)
      .map((need) => ({ ...need, state: this.#store.jobs.get(need.depends_on)?.state ?? need.state }));
  }

  #drawNeeds() {
    const rows = this.#full.dependencies ?? [];
    const some = this.#needed;
    fill(
      this.#needs,
      rows.length && "Depends on",
      rows.length && [
        h(
          "ul",
          { class: "plain-list" },
          some.map(({ depends_on, needs, state }) => {
            const other = this.#store.jobs.get(depends_on);
            const name = `${other?.job_type ?? "job"} #${depends_on}`;
            return h(
              "li",
              {},
              shape(state, state),
              " ",
              other
                ? h("a", { href: address.to({ ...this.#params, job: depends_on }), "data-view": true }, name)
                : name,
              h("span", { class: "muted" }, needs === "finished" ? " (any end will do)" : ""),
            );
          }),
        ),
        rows.length > some.length && h("p", { class: "muted" }, `and ${number(rows.length - some.length)} more`),
      ],
    );
  }
}

function fill(section, heading, content) {
  section.hidden = !heading;
  section.replaceChildren(...(heading ? [h("h3", {}, heading), ...content.filter(Boolean)] : []));
}
