// @ts-check
// The states of jobs and steps, each shown by a shape as well as a colour.

import { h, svg } from "./dom.js";

/** @import { JobState, StateCounts, StepState } from "./types.js" */

/** @type {JobState[]} */
export const STATES = ["waiting", "pending", "running", "completed", "partial", "failed", "cancelled"];
/** @type {ReadonlySet<JobState>} */
export const TERMINAL = new Set(["completed", "partial", "failed", "cancelled"]);

/** @type {Record<JobState | StepState, string>} */
const MEANING = {
  waiting: "waiting for other jobs",
  pending: "ready to run, or scheduled for later",
  running: "running on a pod",
  completed: "completed",
  partial: "some steps failed",
  failed: "failed permanently",
  cancelled: "cancelled",
  skipped: "skipped: nothing to do",
};

const CIRCLE = { cx: 8, cy: 8, r: 6, fill: "none", stroke: "currentColor", "stroke-width": 2 };
const CUT_OUT = {
  fill: "none",
  stroke: "var(--surface)",
  "stroke-width": 2,
  "stroke-linecap": "round",
  "stroke-linejoin": "round",
};
const TRIANGLE = { d: "M4 2.2v11.600L14 8z", fill: "currentColor", stroke: "currentColor", "stroke-linejoin": "round" };
const OCTAGON = { d: "M5 1h6l4 4v6l-4 4H5l-4-4V5z", fill: "currentColor" };
const ARROWS = { d: "M3 4l4 4-4 4m6-8l4 4-4 4", fill: "none", stroke: "currentColor", "stroke-width": 2 };

/** @type {Record<JobState | StepState, () => SVGElement[]>} */
const SHAPES = {
  waiting: () => [svg("circle", { ...CIRCLE, "stroke-dasharray": "2.2 2.5" })],
  pending: () => [svg("circle", CIRCLE)],
  running: () => [svg("path", TRIANGLE)],
  completed: () => [
    svg("circle", { cx: 8, cy: 8, r: 7, fill: "currentColor" }),
    svg("path", { ...CUT_OUT, d: "M4.800 8.300l2.200 2.200 4.200-4.600" }),
  ],
  partial: () => [svg("circle", CIRCLE), svg("path", { d: "M8 2a6 6 0 0 1 0 12z", fill: "currentColor" })],
  failed: () => [svg("path", OCTAGON), svg("path", { ...CUT_OUT, d: "M5.500 5.500l5 5m0-5l-5 5" })],
  cancelled: () => [svg("circle", CIRCLE), svg("path", { d: "M4 12l8-8", stroke: "currentColor", "stroke-width": 2 })],
  skipped: () => [svg("path", ARROWS)],
};

/** Adds the shapes that `shape` refers to; call it once per page. */
export function defineShapes() {
  const symbols = Object.entries(SHAPES).map(([state, draw]) =>
    svg("symbol", { id: `state-${state}`, viewBox: "0 0 16 16" }, draw()),
  );
  document.body.append(svg("svg", { class: "shape-definitions", "aria-hidden": "true", width: 0, height: 0 }, symbols));
}

/**
 * The shape alone. Give it a label if no text beside it names the state.
 *
 * @param {JobState | StepState} state
 * @param {string | null} [label]
 */
export function shape(state, label = null) {
  const use = svg("use", { href: `#state-${state}` });
  const name = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return svg("svg", { class: `shape is-${state}`, viewBox: "0 0 16 16", width: 16, height: 16, ...name }, use);
}

/**
 * @param {SVGSVGElement} element
 * @param {JobState | StepState} state
 */
export function setShape(element, state) {
  if (element.dataset.state === state) return;
  element.dataset.state = state;
  element.setAttribute("class", `shape is-${state}`);
  element.firstElementChild?.setAttribute("href", `#state-${state}`);
}

/**
 * A shape and the state's name.
 *
 * @param {JobState} state
 */
export function badge(state) {
  const name = h("span", {}, state);
  const icon = shape(state);
  const element = h("span", { class: `badge is-${state}` }, icon, name);
  return {
    element,
    /** @param {JobState} next */
    set(next) {
      if (element.dataset.state === next) return;
      element.dataset.state = next;
      element.className = `badge is-${next}`;
      setShape(icon, next);
      name.textContent = next;
      element.title = MEANING[next];
    },
  };
}

/**
 * How many rows are in each state.
 *
 * @param {{ state: JobState }[]} rows
 * @returns {StateCounts}
 */
export function countStates(rows) {
  const counts = { waiting: 0, pending: 0, running: 0, completed: 0, partial: 0, failed: 0, cancelled: 0 };
  for (const { state } of rows) counts[state] += 1;
  return counts;
}
