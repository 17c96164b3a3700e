// @ts-check
// The page: signs the user in, and shows the view that the address names.

import * as api from "./api.js";
import { ConnectionStatus } from "./connection-status.js";
import { askForToken } from "./dialog.js";
import { byId, h, setAttribute } from "./dom.js";
import { OverviewView } from "./overview.js";
import { PipelineView } from "./pipeline.js";
import { PipelinesView } from "./pipelines.js";
import { hrefTo, interceptLinks, onNavigate, readParams } from "./router.js";
import { defineShapes } from "./states.js";
import { Stream } from "./stream.js";

/** @import { App, Me, Params, PipelineEvent, PipelinesEvent, View } from "./types.js" */

const VIEWS = { pipelines: PipelinesView, pipeline: PipelineView, overview: OverviewView };
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 10000;
const main = byId("main");
const connectionStatus = new ConnectionStatus();
const links = {
  pipelines: h("a", { href: hrefTo({}), "data-view": true }, "Pipelines"),
  overview: h("a", { href: hrefTo({ view: "overview" }), "data-view": true }, "Overview"),
};

/** @type {{ key: string, view: View } | null} */
let shown = null;

/**
 * @param {Me} me
 * @returns {App}
 */
function makeApp(me) {
  /**
   * One stream per page: the previous view has closed its own.
   *
   * @param {string} path
   * @param {string | null} pipelineId
   * @param {(name: string, data: unknown) => void} onEvent
   * @param {(message: string) => void} [onUnavailable]
   */
  const openStream = (path, pipelineId, onEvent, onUnavailable) => {
    const stream = new Stream(path, {
      pipelineId,
      needsToken: me.needs_token,
      onEvent,
      onState(state, details) {
        connectionStatus.set(state, details, () => stream.retry());
        if (state === "unavailable") onUnavailable?.(details.message ?? "");
      },
    });
    return stream;
  };
  return {
    may: (permission) => me.permissions.includes(permission),
    setTitle,
    openPipelineStream: (id, onEvent, onUnavailable) =>
      openStream(
        `v1/pipelines/${encodeURIComponent(id)}/events`,
        id,
        (name, data) => onEvent(/** @type {PipelineEvent} */ ({ name, data })),
        onUnavailable,
      ),
    openPipelinesStream: (onEvent, onUnavailable) =>
      openStream(
        "v1/events",
        null,
        (name, data) => onEvent(/** @type {PipelinesEvent} */ ({ name, data })),
        onUnavailable,
      ),
  };
}

/** @param {string} title */
function setTitle(title) {
  document.title = title ? `${title} · reactor` : "reactor";
}

/**
 * @param {Params} params
 * @returns {keyof typeof VIEWS}
 */
function viewName(params) {
  if (params.pipeline) return "pipeline";
  return params.view === "overview" ? "overview" : "pipelines";
}

/** @param {App} app */
function showView(app) {
  const params = readParams();
  const name = viewName(params);
  const key = `${name} ${params.pipeline ?? ""}`;
  setAttribute(links.overview, "aria-current", name === "overview" ? "page" : null);
  setAttribute(links.pipelines, "aria-current", { pipelines: "page", pipeline: "true", overview: null }[name]);
  if (shown?.key === key) {
    shown.view.update(params);
    return;
  }
  const isFirst = shown === null;
  shown?.view.close();
  main.replaceChildren();
  setTitle("");
  shown = { key, view: new VIEWS[name](main, params, app) };
  if (!isFirst) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

/** Asks the server for the user's permissions, until it answers and the user has one. */
async function signIn() {
  for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * 2, MAX_WAIT_MS)) {
    try {
      const me = await api.getMe();
      // The server answers this request also without a token; then there are no permissions.
      if (!me.needs_token || me.permissions.includes("view")) return me;
      await api.renewToken();
    } catch (error) {
      const message = api.describe(error);
      main.replaceChildren(h("p", { class: "empty" }, message));
      await new Promise((resolve) => {
        connectionStatus.set("reconnecting", { retryAt: Date.now() + wait, message }, () => resolve(undefined));
        setTimeout(resolve, wait);
      });
    }
  }
}

async function start() {
  defineShapes();
  const logo = h("img", { src: "icon.svg", alt: "", width: 22, height: 22 });
  byId("top").append(
    h("a", { class: "brand", href: hrefTo({}), "data-view": true }, logo, "reactor"),
    h("nav", { "aria-label": "Views" }, links.pipelines, links.overview),
    connectionStatus.indicator,
  );
  byId("top").after(connectionStatus.banner);
  api.setTokenPrompt(askForToken);
  const app = makeApp(await signIn());
  interceptLinks();
  onNavigate(() => showView(app));
  showView(app);
}

start();
