// @ts-check
// The key figures of the overview.

import { h, setText } from "./dom.js";
import { duration, number } from "./time.js";

/** @import { History, OverviewAnswers, Queue } from "./types.js" */

export const UNAVAILABLE = "unavailable";

/** @typedef {{ name: string, value: string, note: string, isFailure?: boolean }} Tile */

/**
 * @param {HTMLElement} place
 * @param {OverviewAnswers} answers
 * @param {string} range
 */
export function drawTiles(place, answers, range) {
  const tiles = [
    runningTile(answers),
    queuedTile(answers.queues),
    oldestTile(answers.queues),
    finishedTile(answers.history, range),
    failedTile(answers.history),
    podsTile(answers),
  ];
  if (!place.childElementCount) place.replaceChildren(...tiles.map(makeTile));
  tiles.forEach(({ value, note, isFailure }, index) => {
    const tile = place.children[index];
    setText(tile.children[1], value);
    setText(tile.children[2], note);
    tile.classList.toggle("danger", Boolean(isFailure));
  });
}

/** @param {Tile} tile */
const makeTile = ({ name }) =>
  h("div", { class: "tile" }, h("span", { class: "muted" }, name), h("b", {}), h("span", { class: "muted" }));

/**
 * @template Row
 * @param {Row[]} rows
 * @param {(row: Row) => number} value
 */
const sum = (rows, value) => rows.reduce((total, row) => total + value(row), 0);

/**
 * A figure that the server did not give is not zero.
 *
 * @param {string} name
 * @returns {Tile}
 */
const unavailableTile = (name) => ({ name, value: "–", note: UNAVAILABLE });

/**
 * @param {OverviewAnswers} answers
 * @returns {Tile}
 */
function runningTile({ queues, workers }) {
  const name = "Running";
  if (!queues || !workers) return unavailableTile(name);
  const capacity = sum(
    workers.filter((worker) => worker.is_alive),
    (worker) => worker.capacity,
  );
  return { name, value: number(sum(queues, (queue) => queue.running)), note: `of ${number(capacity)} slots` };
}

/**
 * @param {Queue[] | null} queues
 * @returns {Tile}
 */
function queuedTile(queues) {
  const name = "Queued";
  if (!queues) return unavailableTile(name);
  const scheduled = number(sum(queues, (queue) => queue.scheduled));
  const waiting = number(sum(queues, (queue) => queue.waiting));
  const value = number(sum(queues, (queue) => queue.due));
  return { name, value, note: `${scheduled} scheduled, ${waiting} blocked` };
}

/**
 * @param {Queue[] | null} queues
 * @returns {Tile}
 */
function oldestTile(queues) {
  const name = "Oldest queued job";
  if (!queues) return unavailableTile(name);
  const seconds = queues.reduce((most, queue) => Math.max(most, queue.oldest_due_seconds ?? 0), 0);
  if (!seconds) return { name, value: "–", note: "no job is due" };
  return { name, value: duration(seconds), note: "since it became due" };
}

/**
 * @param {History | null} history
 * @param {string} range
 * @returns {Tile}
 */
function finishedTile(history, range) {
  const name = "Finished";
  if (!history) return unavailableTile(name);
  return { name, value: number(sum(history.buckets, (bucket) => bucket.finished)), note: `in the last ${range}` };
}

/**
 * @param {History | null} history
 * @returns {Tile}
 */
function failedTile(history) {
  const name = "Failed";
  if (!history) return unavailableTile(name);
  const failed = sum(history.buckets, (bucket) => bucket.failed);
  const finished = sum(history.buckets, (bucket) => bucket.finished);
  const note = finished ? `${((failed / finished) * 100).toFixed(1)} % of finished jobs` : "no job finished";
  return { name, value: number(failed), note, isFailure: failed > 0 };
}

/**
 * @param {OverviewAnswers} answers
 * @returns {Tile}
 */
function podsTile({ workers, isDraining }) {
  const name = "Pods";
  if (!workers) return unavailableTile(name);
  const alive = workers.filter((worker) => worker.is_alive);
  const value = number(new Set(alive.map((worker) => worker.pod)).size);
  const processes = `${number(alive.length)} worker ${alive.length === 1 ? "process" : "processes"}`;
  return { name, value, note: isDraining ? "draining: no jobs start" : processes };
}
