// Cancel, retry and recover: after a confirmation, with the result shown.

import * as api from "./api.js";
import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { notice } from "./notice.js";
import { ENDED } from "./states.js";

const JOB = {
  cancel: {
    name: "Cancel",
    grave: true,
    reason: true,
    when: (job) => !ENDED.has(job.state),
    words: "It is stopped if it runs, and jobs that need its completion are cancelled too.",
  },
  retry: {
    name: "Retry",
    when: (job) => ENDED.has(job.state),
    words:
      "It runs again with a fresh number of attempts. Steps that are done are not done again. Jobs that were cancelled because of it wait again.",
  },
  recover: {
    name: "Recover",
    when: (job) => job.state === "running",
    words:
      "For a job whose worker is dead: it is taken from that worker and runs elsewhere. The server refuses this while the worker lives.",
  },
};

const PIPELINE = {
  cancel: {
    name: "Cancel pipeline",
    grave: true,
    reason: true,
    when: (row) => row.state === "running",
    words: "All of its jobs that have not ended are cancelled. Running ones are stopped.",
  },
  retry: {
    name: "Retry pipeline",
    when: (row) => row.failed + row.partial + row.cancelled > 0,
    words: "All of its jobs that failed, ended partially or were cancelled run again. Completed ones stay as they are.",
  },
};

export const jobButtons = (app) =>
  buttons(app, JOB, (job) => [`v1/jobs/${job.id}`, `job ${job.id}${job.job_type ? `, ${job.job_type}` : ""}`]);
export const pipelineButtons = (app) =>
  buttons(app, PIPELINE, (row) => [`v1/pipelines/${row.pipeline_id}`, "the pipeline"]);

/** Buttons that come and go with the row's state; none without the permission. */
function buttons(app, actions, about) {
  const element = h("div", { class: "buttons" });
  let row = null;
  const made = Object.entries(actions).map(([verb, action]) => {
    const button = h("button", { class: "button", type: "button", hidden: true }, action.name);
    button.addEventListener("click", () => act(verb, action, button));
    element.append(button);
    return [button, action];
  });
  async function act(verb, action, button) {
    const [path, what] = about(row);
    const agreed = await confirm({
      title: `${action.name.split(" ")[0]} ${what}?`,
      words: action.words,
      verb: action.name,
      grave: action.grave,
      reason: action.reason,
    });
    if (!agreed) return;
    button.disabled = true;
    try {
      const body = agreed.reason ? { reason: agreed.reason } : {};
      notice(result(verb, what, await api.post(`${path}/${verb}`, body)));
    } catch (error) {
      notice(`${action.name} ${what}: ${error.words ?? error.message}`, { wrong: true });
    }
    button.disabled = false;
  }
  return {
    element,
    set(next) {
      row = next;
      for (const [button, action] of made) button.hidden = !app.may("operate") || !action.when(row);
    },
  };
}

const PAST = { cancel: "cancelled", retry: "put back to run again", recover: "taken from its dead worker" };

function result(verb, what, answer) {
  const jobs = Object.keys(answer.jobs ?? {}).length;
  const whole = what.charAt(0).toUpperCase() + what.slice(1);
  if (!answer.jobs || jobs === 1) return `${whole}: ${PAST[verb]}.`;
  return jobs ? `${whole}: ${jobs} jobs ${PAST[verb]}.` : `${whole}: there was nothing to do.`;
}
