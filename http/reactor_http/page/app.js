// The page: asks who is looking, and shows the view that the address names.

import * as address from "./router.js";
import * as api from "./api.js";
import { askForToken } from "./dialog.js";
import { ConnectionSign } from "./connection-status.js";
import { h, setAttribute } from "./dom.js";
import { OverviewView } from "./overview.js";
import { PipelineView } from "./pipeline.js";
import { PipelinesView } from "./pipelines.js";
import { defineShapes } from "./states.js";
import { Stream } from "./stream.js";

const VIEWS = { pipelines: PipelinesView, pipeline: PipelineView, overview: OverviewView };
const main = document.getElementById("main");
const sign = new ConnectionSign();
const links = {
  pipelines: h("a", { href: address.to({}), "data-view": true }, "Pipelines"),
  overview: h("a", { href: address.to({ view: "overview" }), "data-view": true }, "Overview"),
};
let me = null;
let shown = { key: null, view: null };

/** What a view may use of the page around it. */
const app = {
  may: (permission) => me.permissions.includes(permission),
  setTitle: (words) => {
    document.title = words ? `${words} · reactor` : "reactor";
  },
  /** One stream per page, whatever it shows: the view before has closed its own. */
  stream(path, pipeline, onEvent, onGone) {
    const stream = new Stream(path, {
      pipeline,
      needsToken: me.needs_token,
      on: {
        event: onEvent,
        state(state, facts) {
          sign.set(state, facts, () => stream.retry());
          if (state === "gone") onGone?.(facts.words);
        },
      },
    });
    return stream;
  },
};

function route() {
  const params = address.read();
  const name = params.pipeline ? "pipeline" : params.view in VIEWS ? params.view : "pipelines";
  const key = `${name} ${params.pipeline ?? ""}`;
  for (const [link, element] of Object.entries(links)) {
    setAttribute(
      element,
      "aria-current",
      link === name ? "page" : link === "pipelines" && name === "pipeline" ? "true" : null,
    );
  }
  if (shown.key === key) {
    shown.view.update(params);
    return;
  }
  const first = shown.view === null;
  shown.view?.close();
  main.replaceChildren();
  app.setTitle("");
  shown = { key, view: new VIEWS[name](main, params, app) };
  if (!first) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

async function start() {
  defineShapes();
  document
    .getElementById("top")
    .append(
      h(
        "a",
        { class: "brand", href: address.to({}), "data-view": true },
        h("img", { src: "icon.svg", alt: "", width: 22, height: 22 }),
        "reactor",
      ),
      h("nav", { "aria-label": "Views" }, links.pipelines, links.overview),
      sign.sign,
    );
  document.getElementById("top").after(sign.banner);
  api.whenTokenIsNeeded(askForToken);
  await meet();
  address.followLinks();
  address.onMove(route);
  route();
}

/** Asks who is looking, until the server answers, and until it knows them. */
async function meet() {
  for (let wait = 500; !me; wait = Math.min(wait * 2, 10000)) {
    try {
      const answer = await api.get("v1/me");
      // Strangers may ask who they are, and are told that they are nobody.
      if (answer.needs_token && !answer.permissions.includes("view")) await api.renewToken();
      else me = answer;
    } catch (error) {
      main.replaceChildren(h("p", { class: "empty" }, error.words ?? error.message));
      await new Promise((resolve) => {
        sign.set("reconnecting", { retryAt: Date.now() + wait, words: error.words }, resolve);
        setTimeout(resolve, wait);
      });
    }
  }
}

start();
