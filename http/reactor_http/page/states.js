// The states of jobs and steps, each told by a shape as well as by a colour.

import { h, svg } from "./dom.js";

export const STATES = ["waiting", "pending", "running", "completed", "partial", "failed", "cancelled"];
export const ENDED = new Set(["completed", "partial", "failed", "cancelled"]);

export const MEANING = {
  waiting: "waits for other jobs",
  pending: "due, or put off until later",
  running: "a pod works on it",
  completed: "done",
  partial: "some of its steps failed",
  failed: "failed for good",
  cancelled: "cancelled",
  skipped: "there was nothing to do",
};

const ring = { cx: 8, cy: 8, r: 6, fill: "none", stroke: "currentColor", "stroke-width": 2 };
const cut = {
  fill: "none",
  stroke: "var(--surface)",
  "stroke-width": 2,
  "stroke-linecap": "round",
  "stroke-linejoin": "round",
};

const SHAPES = {
  waiting: () => [svg("circle", { ...ring, "stroke-dasharray": "2.2 2.5" })],
  pending: () => [svg("circle", ring)],
  running: () => [
    svg("path", { d: "M4 2.2v11.600L14 8z", fill: "currentColor", stroke: "currentColor", "stroke-linejoin": "round" }),
  ],
  completed: () => [
    svg("circle", { cx: 8, cy: 8, r: 7, fill: "currentColor" }),
    svg("path", { ...cut, d: "M4.800 8.300l2.200 2.200 4.200-4.600" }),
  ],
  partial: () => [svg("circle", ring), svg("path", { d: "M8 2a6 6 0 0 1 0 12z", fill: "currentColor" })],
  failed: () => [
    svg("path", { d: "M5 1h6l4 4v6l-4 4H5l-4-4V5z", fill: "currentColor" }),
    svg("path", { ...cut, d: "M5.500 5.500l5 5m0-5l-5 5" }),
  ],
  cancelled: () => [svg("circle", ring), svg("path", { d: "M4 12l8-8", stroke: "currentColor", "stroke-width": 2 })],
  skipped: () => [
    svg("path", { d: "M3 4l4 4-4 4m6-8l4 4-4 4", fill: "none", stroke: "currentColor", "stroke-width": 2 }),
  ],
};

/** Once per page: the shapes that `shape` refers to. */
export function defineShapes() {
  const symbols = Object.entries(SHAPES).map(([state, draw]) =>
    svg("symbol", { id: `state-${state}`, viewBox: "0 0 16 16" }, draw()),
  );
  document.body.append(svg("svg", { class: "defined", "aria-hidden": "true", width: 0, height: 0 }, symbols));
}

/** Only the shape; where no word stands beside it, give it a label. */
export function shape(state, label = null) {
  const use = svg("use", { href: `#state-${state}` });
  const named = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return svg("svg", { class: `shape is-${state}`, viewBox: "0 0 16 16", width: 16, height: 16, ...named }, use);
}

export function setShape(element, state) {
  if (element.dataset.state === state) return;
  element.dataset.state = state;
  element.setAttribute("class", `shape is-${state}`);
  element.firstChild.setAttribute("href", `#state-${state}`);
}

export function badge(state) {
  const word = h("span", {}, state);
  const icon = shape(state);
  const element = h("span", { class: `badge is-${state}` }, icon, word);
  return {
    element,
    set(next) {
      if (element.dataset.state === next) return;
      element.dataset.state = next;
      element.className = `badge is-${next}`;
      setShape(icon, next);
      word.textContent = next;
      element.title = MEANING[next] ?? "";
    },
  };
}
