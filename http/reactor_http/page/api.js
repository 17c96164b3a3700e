// @ts-check
// Calls the server's API. Addresses are relative: the application may be mounted under any path.

import { setClock } from "./time.js";

/**
 * @import { Changed, History, JobDetails, LogPage, LogQuery, Me, PipelinePage, Problem, Queues, Stats, Why, Workers } from "./types.js"
 */

const TOKEN_KEY = "reactor.token";

/** @type {((wasRefused: boolean) => Promise<string>) | null} */
let askForToken = null;
/** @type {Promise<string> | null} */
let pendingToken = null;

/** The server answered with an error. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {Problem} problem
   */
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `The server answered ${status}.`);
    this.status = status;
    this.problem = problem;
  }

  /** The error and its remedy. */
  get description() {
    const fields = (this.problem.errors ?? []).map((error) => `${error.field}: ${error.message}`);
    return [this.message, this.problem.remedy, ...fields].filter(Boolean).join(" ");
  }
}

/** The server did not answer. */
export class Unreachable extends Error {
  constructor() {
    super("The server does not answer.");
  }
}

/**
 * The text to show for an error.
 *
 * @param {unknown} error
 */
export function describe(error) {
  if (error instanceof Refused) return error.description;
  return error instanceof Error ? error.message : String(error);
}

/**
 * `ask` is called when the server requires a token, and resolves to one.
 *
 * @param {(wasRefused: boolean) => Promise<string>} ask
 */
export function setTokenPrompt(ask) {
  askForToken = ask;
}

/** @returns {Promise<Me>} */
export const getMe = () => get("v1/me");

/**
 * @param {number} id
 * @returns {Promise<JobDetails>}
 */
export const getJob = (id) => get(`v1/jobs/${id}`);

/**
 * @param {number} id
 * @returns {Promise<Why>}
 */
export const getWhy = (id) => get(`v1/jobs/${id}/why`);

/**
 * @param {number} id
 * @param {LogQuery} query
 * @returns {Promise<LogPage>}
 */
export function getLogs(id, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== "" && value !== undefined);
  return get(`v1/jobs/${id}/logs?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`);
}

/**
 * @param {string} query
 * @returns {Promise<PipelinePage>}
 */
export const listPipelines = (query) => get(`v1/pipelines${query}`);

/**
 * @param {string} minutes
 * @returns {Promise<History>}
 */
export const getHistory = (minutes) => get(`v1/stats/history?minutes=${minutes}`);

/** @returns {Promise<Stats>} */
export const getStatsOfLastDay = () => get("v1/stats?days=1");

/** @returns {Promise<Workers>} */
export const getWorkers = () => get("v1/workers");

/** @returns {Promise<Queues>} */
export const getQueues = () => get("v1/queues");

/**
 * @param {string | null} pipelineId null: for every stream
 * @returns {Promise<{ token: string }>}
 */
export const createStreamToken = (pipelineId) => call("POST", "v1/stream-tokens", { pipeline_id: pipelineId });

/**
 * An operator's action.
 *
 * @param {string} path of the job or pipeline
 * @param {string} action
 * @param {string | null} reason
 * @returns {Promise<Changed>}
 */
export const act = (path, action, reason) => call("POST", `${path}/${action}`, reason ? { reason } : {});

/** Asks the user for a token, and keeps it until the tab is closed. */
export async function renewToken() {
  if (!askForToken) return;
  // Several requests may be refused at the same time: the user is asked once.
  pendingToken ??= askForToken(sessionStorage.getItem(TOKEN_KEY) !== null).finally(() => {
    pendingToken = null;
  });
  sessionStorage.setItem(TOKEN_KEY, await pendingToken);
}

/**
 * Why a stream can't be opened; null: it can be opened now.
 *
 * @param {string} address
 * @returns {Promise<Refused | Unreachable | null>}
 */
export async function probe(address) {
  const abort = new AbortController();
  try {
    const response = await fetch(address, { signal: abort.signal, cache: "no-store" });
    if (response.ok) return null;
    return new Refused(response.status, await response.json().catch(() => ({})));
  } catch {
    return new Unreachable();
  } finally {
    abort.abort();
  }
}

/** @param {string} path */
const get = (path) => call("GET", path);

/**
 * @param {"GET" | "POST"} method
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>} parsed JSON, typed by the functions above
 */
async function call(method, path, body) {
  const response = await send(method, path, body);
  const serverDate = response.headers.get("date");
  if (serverDate) setClock(serverDate);
  if (response.status === 401 && askForToken) {
    await renewToken();
    return call(method, path, body);
  }
  const answer = await response
    .text()
    .then((text) => JSON.parse(text, keepDigits))
    .catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}

/**
 * @param {"GET" | "POST"} method
 * @param {string} path
 * @param {object} [body]
 */
async function send(method, path, body) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  if (body) headers["content-type"] = "application/json";
  try {
    return await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Unreachable();
  }
}

/**
 * Keeps the digits of integers beyond JavaScript's precision, which payloads may contain, if the browser can.
 *
 * @param {string} _key
 * @param {unknown} value
 * @param {{ source: string }} [context]
 */
function keepDigits(_key, value, context) {
  const isInexact = typeof value === "number" && !Number.isSafeInteger(value);
  if (!JSON.rawJSON || !isInexact || !context || !/^-?\d+$/.test(context.source)) return value;
  return JSON.rawJSON(context.source);
}
