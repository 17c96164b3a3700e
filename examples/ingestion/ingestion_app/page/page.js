// @ts-check
// Submits uploads, and shows progress and results. Text of the server is inserted as text, never as HTML.

/** @typedef {HTMLElement & { pipeline: string, token: string }} Progress */
/** @typedef {Record<string, any>} Row */

const RUNS = 5;

/** @param {string} id */
const input = (id) => /** @type {HTMLInputElement} */ (document.getElementById(id));

/** Of the next request. It changes when that has succeeded: a double click, or another try, creates no second job. */
let key = crypto.randomUUID();

/**
 * @param {string} path
 * @param {RequestInit} [options]
 */
async function call(path, options = {}) {
  const headers = { ...options.headers, Authorization: `Bearer ${input("token").value}` };
  const response = await fetch(path, { ...options, headers });
  const body = await response.json();
  if (!response.ok) throw new Error(typeof body.detail === "string" ? body.detail : JSON.stringify(body.detail));
  return body;
}

/** @param {string} path */
const post = (path) => call(path, { method: "POST", headers: { "Idempotency-Key": key } });

/** @param {Record<string, string>} query */
const about = (query) => new URLSearchParams({ ...query, year: input("year").value });

async function upload() {
  const form = /** @type {HTMLFormElement} */ (document.getElementById("upload"));
  const given = new FormData(form);
  const [module = "", type = ""] = String(given.get("kind")).split("/");
  const target = String(given.get("target"));
  const query = about(target === "factors" ? { module } : { module, data_entry_type: type });
  const body = new FormData();
  body.set("file", /** @type {File} */ (given.get("file")));
  return call(`api/${target}?${query}`, { method: "POST", body, headers: { "Idempotency-Key": key } });
}

/**
 * Runs what a click asks for, and shows what goes wrong.
 *
 * @param {() => Promise<unknown>} action
 */
async function run(action) {
  const problem = input("problem");
  problem.hidden = true;
  try {
    await action();
    key = crypto.randomUUID();
  } catch (error) {
    problem.textContent = error instanceof Error ? error.message : String(error);
    problem.hidden = false;
  }
}

async function refresh() {
  if (!input("token").value) return;
  const query = about({});
  const [pipelines, reports, stale, current] = await Promise.all([
    call(`reactor/v1/pipelines?${new URLSearchParams({ tag: `year=${input("year").value}`, limit: String(RUNS) })}`),
    call(`api/reports?${query}`),
    call(`api/factors/stale?${query}`),
    call(`api/runs/current?${query}`),
  ]);
  showRuns(pipelines.pipelines);
  show("reports", reports, {
    Module: (row) => row.module,
    "Total (kg CO₂)": (row) => (row.total_kg === null ? "being calculated" : Number(row.total_kg).toFixed(3)),
    "Entries without factor": (row) => row.without_factor,
  });
  show("stale", stale, {
    Type: (row) => row.data_entry_type,
    Activity: (row) => row.activity,
    "kg per unit": (row) => Number(row.kg_per_unit),
  });
  show("current", current, {
    Target: (row) => row.combination.target,
    Module: (row) => row.combination.module,
    Type: (row) => row.combination.data_entry_type,
    Method: (row) => row.combination.method,
    Run: (row) => row.job_id,
    State: (row) => row.state,
    Message: (row) => row.status_message,
    Entries: (row) => row.entries,
  });
}

/**
 * @param {string} id
 * @param {Row[]} rows
 * @param {Record<string, (row: Row) => string | number | null>} columns
 */
function show(id, rows, columns) {
  const table = /** @type {HTMLTableElement} */ (document.getElementById(id));
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  for (const name of Object.keys(columns)) head.append(cell("th", name));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of Object.values(columns)) line.append(cell("td", value(row) ?? "–"));
  }
}

/**
 * @param {"th" | "td"} tag
 * @param {string | number} value
 */
function cell(tag, value) {
  const made = document.createElement(tag);
  made.textContent = String(value);
  return made;
}

/**
 * The newest first. Those that are shown stay where they are: a move would open their streams again.
 *
 * @param {Row[]} pipelines
 */
function showRuns(pipelines) {
  const runs = input("runs");
  const shown = new Set([...runs.children].map((child) => child.id));
  for (const pipeline of pipelines.reverse()) if (!shown.has(pipeline.pipeline_id)) runs.prepend(progressOf(pipeline));
  while (runs.children.length > RUNS) runs.lastElementChild?.remove();
}

/** @param {Row} pipeline */
function progressOf(pipeline) {
  const progress = /** @type {Progress} */ (document.createElement("reactor-progress"));
  const renew = async () => {
    const body = JSON.stringify({ pipeline_id: pipeline.pipeline_id });
    const headers = { "Content-Type": "application/json" };
    progress.token = (await call("reactor/v1/stream-tokens", { method: "POST", body, headers })).token;
  };
  progress.id = pipeline.pipeline_id;
  progress.setAttribute("label", `${pipeline.job_type} ${pipeline.first_id}`);
  progress.addEventListener("tokenneeded", renew);
  if (pipeline.state === "running") progress.addEventListener("end", () => run(refresh));
  renew().then(() => (progress.pipeline = pipeline.pipeline_id));
  return progress;
}

const stored = sessionStorage.getItem("token");
if (stored) input("token").value = stored;
input("year").value = String(new Date().getFullYear());
input("token").addEventListener("change", () => {
  sessionStorage.setItem("token", input("token").value);
  run(refresh);
});
input("year").addEventListener("change", () => {
  input("runs").replaceChildren();
  run(refresh);
});
input("upload").addEventListener("submit", (event) => {
  event.preventDefault();
  run(() => upload().then(refresh));
});
/** @type {Record<string, () => string>} */
const BUTTONS = {
  import: () => `api/imports?${about({ module: "travel", data_entry_type: "train" })}`,
  recalculate: () => `api/recalculations?${about({ module: "travel" })}`,
  units: () => "api/units/sync",
};
for (const [id, path] of Object.entries(BUTTONS)) {
  input(id).addEventListener("click", () => run(() => post(path()).then(refresh)));
}
run(refresh);
