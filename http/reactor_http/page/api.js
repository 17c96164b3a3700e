// Asks the server. Addresses are relative: the application may be mounted anywhere.

import { setClock } from "./time.js";

const KEPT = "reactor.token";
let askForToken = null;
let asking = null;

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `The server answered ${status}.`);
    this.status = status;
    this.problem = problem;
  }

  /** What happened and what to do, for people. */
  get words() {
    const fields = (this.problem.errors ?? []).map((error) => `${error.field}: ${error.message}`);
    return [this.message, this.problem.remedy, ...fields].filter(Boolean).join(" ");
  }
}

export class Unreachable extends Error {
  constructor() {
    super("The server does not answer.");
    this.words = "The server does not answer.";
  }
}

/** `ask` is called when the server wants a token, and promises one. */
export function whenTokenIsNeeded(ask) {
  askForToken = ask;
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);

/** Asks the person for a token, and keeps it as long as the tab lives. */
export async function renewToken() {
  // Several requests may be refused at once: the person is asked once.
  asking ??= askForToken(sessionStorage.getItem(KEPT) !== null).finally(() => {
    asking = null;
  });
  sessionStorage.setItem(KEPT, await asking);
}

/** Why a stream can't be opened: a Refused, an Unreachable, or null if it can be now. */
export async function probe(address) {
  const stop = new AbortController();
  try {
    const response = await fetch(address, { signal: stop.signal, cache: "no-store" });
    if (response.ok) return null;
    return new Refused(response.status, await response.json().catch(() => ({})));
  } catch {
    return new Unreachable();
  } finally {
    stop.abort();
  }
}

/** Whole numbers beyond what JavaScript can hold keep their digits, in browsers that have a way to: payloads are full of them. */
const exact = (key, value, context) =>
  JSON.rawJSON && typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source)
    ? JSON.rawJSON(context.source)
    : value;

async function call(method, path, body) {
  const token = sessionStorage.getItem(KEPT);
  const headers = { accept: "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  if (body) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Unreachable();
  }
  const said = response.headers.get("date");
  if (said) setClock(said);
  if (response.status === 401 && askForToken) {
    await renewToken();
    return call(method, path, body);
  }
  const answer = await response
    .text()
    .then((text) => JSON.parse(text, exact))
    .catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}
