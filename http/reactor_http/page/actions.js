// @ts-check
// Buttons for cancel, retry and recover: each asks for confirmation and shows the result.

import * as api from "./api.js";
import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { showNotice } from "./notice.js";
import { TERMINAL } from "./states.js";

/** @import { App, Changed, Job, Pipeline } from "./types.js" */

/** @typedef {"cancel" | "retry" | "recover"} ActionName */

/**
 * @template Row
 * @typedef {object} Action
 * @property {ActionName} name
 * @property {string} label
 * @property {string} text
 * @property {(row: Row) => boolean} isOffered
 * @property {boolean} [isDestructive]
 * @property {boolean} [asksReason]
 */

/** @type {Action<Job>[]} */
const JOB_ACTIONS = [
  {
    name: "cancel",
    label: "Cancel",
    text: "Stops the job if it is running, and cancels the jobs that depend on its completion.",
    isOffered: (job) => !TERMINAL.has(job.state),
    isDestructive: true,
    asksReason: true,
  },
  {
    name: "retry",
    label: "Retry",
    text:
      "Runs the job again with a fresh quota of attempts. Completed steps are not run again. " +
      "Jobs that were cancelled because of it are restored.",
    isOffered: (job) => TERMINAL.has(job.state),
  },
  {
    name: "recover",
    label: "Recover",
    text:
      "Takes the job from its dead worker, so that another worker runs it. " +
      "The server refuses if the worker is alive.",
    isOffered: (job) => job.state === "running",
  },
];

/** @type {Action<Pipeline>[]} */
const PIPELINE_ACTIONS = [
  {
    name: "cancel",
    label: "Cancel pipeline",
    text: "Cancels all jobs that have not finished. Running jobs are stopped.",
    isOffered: (pipeline) => pipeline.state === "running",
    isDestructive: true,
    asksReason: true,
  },
  {
    name: "retry",
    label: "Retry pipeline",
    text: "Runs all failed, partial and cancelled jobs again. Completed jobs are not run again.",
    isOffered: (pipeline) => pipeline.failed + pipeline.partial + pipeline.cancelled > 0,
  },
];

/** @type {Record<ActionName, string>} */
const RESULTS = { cancel: "cancelled", retry: "will run again", recover: "recovered" };

/** @param {App} app */
export const jobButtons = (app) =>
  actionButtons(app, JOB_ACTIONS, (job) => ({
    path: `v1/jobs/${job.id}`,
    subject: `job ${job.id}${job.job_type ? `, ${job.job_type}` : ""}`,
  }));

/** @param {App} app */
export const pipelineButtons = (app) =>
  actionButtons(app, PIPELINE_ACTIONS, (pipeline) => ({
    path: `v1/pipelines/${pipeline.pipeline_id}`,
    subject: "the pipeline",
  }));

/**
 * Buttons that follow the row's state; none without the permission.
 *
 * @template Row
 * @param {App} app
 * @param {Action<Row>[]} actions
 * @param {(row: Row) => { path: string, subject: string }} target
 */
function actionButtons(app, actions, target) {
  /** @type {Row | null} */
  let current = null;
  const buttons = actions.map((action) => {
    const button = h("button", { class: "button", type: "button", hidden: true }, action.label);
    button.addEventListener("click", () => current && run(action, target(current), button));
    return { action, button };
  });
  return {
    element: h("div", { class: "buttons" }, ...buttons.map(({ button }) => button)),
    /** @param {Row} row */
    set(row) {
      current = row;
      for (const { action, button } of buttons) button.hidden = !app.may("operate") || !action.isOffered(row);
    },
  };
}

/**
 * @template Row
 * @param {Action<Row>} action
 * @param {{ path: string, subject: string }} target
 * @param {HTMLButtonElement} button
 */
async function run({ name, label, text, isDestructive, asksReason }, { path, subject }, button) {
  const title = `${label.split(" ")[0]} ${subject}?`;
  const confirmed = await confirm({ title, text, action: label, isDestructive, asksReason });
  if (!confirmed) return;
  button.disabled = true;
  try {
    showNotice(resultText(name, subject, await api.act(path, name, confirmed.reason)));
  } catch (error) {
    showNotice(`${label} ${subject}: ${api.describe(error)}`, { isError: true });
  }
  button.disabled = false;
}

/**
 * @param {ActionName} name
 * @param {string} subject
 * @param {Changed} answer
 */
function resultText(name, subject, answer) {
  const count = Object.keys(answer.jobs ?? {}).length;
  const start = subject.charAt(0).toUpperCase() + subject.slice(1);
  if (!answer.jobs || count === 1) return `${start}: ${RESULTS[name]}.`;
  return count ? `${start}: ${count} jobs ${RESULTS[name]}.` : `${start}: no job changed.`;
}
