// @ts-check
// Triggers simulations, and shows their model-days. Text of the server is inserted as text, never as HTML.

/** @typedef {HTMLElement & { pipeline: string, token: string }} Progress */
/** @typedef {Record<string, any>} Row */

const TERMINAL = ["completed", "partial", "failed", "cancelled"];

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const token = /** @type {HTMLInputElement} */ (element("token"));
const progress = /** @type {Progress} */ (document.querySelector("reactor-progress"));

/** The simulation that is shown. */
let shown = 0;
let isRefreshing = false;
let isStale = false;

/**
 * @param {string} path
 * @param {unknown} [body] of a POST
 */
async function call(path, body) {
  /** @type {Record<string, string>} */
  const headers = { Authorization: `Bearer ${token.value}` };
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  const found = await response.json();
  if (!response.ok) throw new Error(typeof found.detail === "string" ? found.detail : found.detail[0].msg);
  return found;
}

/**
 * Runs what a click asks for.
 *
 * @param {() => Promise<unknown>} action
 */
function run(action) {
  element("problem").hidden = true;
  return attempt(() => action().then(refresh));
}

/**
 * Shows what goes wrong.
 *
 * @param {() => Promise<unknown>} action
 */
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    element("problem").textContent = error instanceof Error ? error.message : String(error);
    element("problem").hidden = false;
  }
}

/** One at a time; changes meanwhile cause one more. */
async function refresh() {
  isStale = true;
  if (isRefreshing || !token.value) return;
  isRefreshing = true;
  try {
    while (isStale) {
      isStale = false;
      await load();
    }
  } finally {
    isRefreshing = false;
  }
}

async function load() {
  const { simulations } = await call("api/simulations?limit=8");
  showSimulations(simulations);
  shown ||= simulations[0]?.job_id ?? 0;
  if (!shown) return;
  const [simulation, results] = await Promise.all([
    call(`api/simulations/${shown}`),
    call(`api/results?job_id=${shown}&limit=2000`),
  ]);
  showDetails(simulation);
  showGrid(simulation, results);
}

/** @param {Row[]} simulations */
function showSimulations(simulations) {
  const rows = simulations.map((simulation) => {
    const open = button(`${simulation.first} to ${simulation.last}`, () => show(simulation.job_id));
    const { completed, total } = simulation.counts;
    const seconds = `${simulation.durations.total.toFixed(1)} s`;
    return [simulation.job_id, open, simulation.models.length, simulation.state, `${completed} of ${total}`, seconds];
  });
  fill("simulations", ["Job", "Dates", "Models", "State", "Completed", "Time"], rows);
}

/** @param {Row} simulation */
function showDetails(simulation) {
  const { counts } = simulation;
  const states = ["completed", "running", "pending", "failed", "skipped"].filter((state) => counts[state] > 0);
  const now = counts.current ? `; now ${counts.current}` : "";
  element("title").textContent = `Simulation ${simulation.job_id}: ${simulation.state}`;
  element("counts").textContent = states.map((state) => `${counts[state]} ${state}`).join(", ") + now;
  element("cancel").hidden = TERMINAL.includes(simulation.state);
  element("retry").hidden = !["partial", "failed", "cancelled"].includes(simulation.state);
  element("details").hidden = false;
  follow(simulation);
}

/** @param {Row} simulation */
async function follow(simulation) {
  if (progress.pipeline === simulation.pipeline_id) return;
  progress.setAttribute("label", `${simulation.first} to ${simulation.last}`);
  await renew(simulation.pipeline_id);
  progress.pipeline = simulation.pipeline_id;
}

/** @param {string} pipeline */
async function renew(pipeline) {
  progress.token = (await call("reactor/v1/stream-tokens", { pipeline_id: pipeline })).token;
}

/**
 * @param {Row} simulation
 * @param {Row[]} results
 */
function showGrid(simulation, results) {
  /** @param {Row} day */
  const key = (day) => `${day.date}/${day.model}`;
  const returns = new Map(results.map((result) => [key(result), Number(result.day_return)]));
  const days = new Map(simulation.model_days.map((/** @type {Row} */ day) => [key(day), day]));
  const dates = [...new Set(simulation.model_days.map((/** @type {Row} */ day) => day.date))];
  const rows = dates.map((date) => [
    date,
    ...simulation.models.map((/** @type {string} */ model) => {
      const day = days.get(`${date}/${model}`);
      const found = returns.get(key(day));
      const open = button(found === undefined ? day.state : percent(found), () => showLog(day));
      open.dataset.state = day.state;
      open.title = [day.state, day.error].filter(Boolean).join(": ");
      return open;
    }),
  ]);
  /** @param {string} model */
  const total = (model) =>
    results.filter((result) => result.model === model).reduce((value, result) => value * (1 + +result.day_return), 1);
  rows.push(["Return", ...simulation.models.map((/** @type {string} */ model) => percent(total(model) - 1))]);
  fill("grid", ["Date", ...simulation.models], rows);
}

/** @param {number} fraction */
const percent = (fraction) => `${fraction > 0 ? "+" : ""}${(100 * fraction).toFixed(2)} %`;

/** @param {number} jobId */
async function show(jobId) {
  shown = jobId;
  element("log").hidden = true;
}

/** @param {Row} day */
async function showLog(day) {
  const path = `${day.date}/${day.model}`;
  const lines = await call(`api/simulations/${shown}/logs/${path}`);
  const logged = lines.map((/** @type {Row} */ line) => line.message);
  element("day").textContent = `${path}: ${day.state}, runs: ${day.attempts}, ${(day.seconds ?? 0).toFixed(2)} s`;
  element("lines").textContent = [...logged, day.error].filter(Boolean).join("\n");
  element("log").hidden = false;
}

/**
 * @param {string} id
 * @param {string[]} columns
 * @param {(string | number | Node)[][]} rows
 */
function fill(id, columns, rows) {
  const table = /** @type {HTMLTableElement} */ (element(id));
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  for (const column of columns) head.append(cell("th", column));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) line.append(cell("td", value));
  }
}

/**
 * @param {"th" | "td"} tag
 * @param {string | number | Node} content
 */
function cell(tag, content) {
  const made = document.createElement(tag);
  made.append(content instanceof Node ? content : String(content));
  return made;
}

/**
 * @param {string} text
 * @param {() => Promise<unknown>} action
 */
function button(text, action) {
  const made = document.createElement("button");
  made.textContent = text;
  made.addEventListener("click", () => run(action));
  return made;
}

async function showModels() {
  const models = await call("api/models");
  const boxes = models.map((/** @type {string} */ model) => {
    const label = document.createElement("label");
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", name: "models", value: model, checked: true });
    label.append(box, model);
    return label;
  });
  element("models").replaceChildren(...boxes);
}

async function trigger() {
  const given = new FormData(/** @type {HTMLFormElement} */ (element("trigger")));
  const plan = { first: given.get("first"), last: given.get("last"), models: given.getAll("models") };
  await show((await call("api/simulations", plan)).job_id);
}

function start() {
  if (token.value) run(showModels);
}

token.value = sessionStorage.getItem("token") ?? "";
token.addEventListener("change", () => {
  sessionStorage.setItem("token", token.value);
  start();
});
element("trigger").addEventListener("submit", (event) => {
  event.preventDefault();
  run(trigger);
});
element("cancel").addEventListener("click", () => run(() => call(`reactor/v1/jobs/${shown}/cancel`, {})));
element("retry").addEventListener("click", () => run(() => call(`reactor/v1/jobs/${shown}/retry`, {})));
progress.setAttribute("follow", "");
progress.addEventListener("progress", () => attempt(refresh));
progress.addEventListener("tokenneeded", () => attempt(() => renew(progress.pipeline)));
start();
