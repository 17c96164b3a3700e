// @ts-check
// Progress bars: one fill, or one part per state.

import { h, setAttribute } from "./dom.js";

/** @import { JobState, StateCounts } from "./types.js" */

/** @type {JobState[]} */
const ORDER = ["completed", "partial", "failed", "cancelled", "running", "pending", "waiting"];

/**
 * Whole percents, rounded down, so that only a completed job shows 100. In floating point, 29 of 100 is
 * 28.999999999999996 %: a small addition makes it 29.
 *
 * @param {number} fraction
 */
export const percent = (fraction) => Math.floor(fraction * 100 + 1e-6);

/** @param {string} label */
export function progressBar(label) {
  const fill = h("span", { class: "fill" });
  const range = { "aria-valuemin": 0, "aria-valuemax": 100 };
  const element = h("span", { class: "bar", role: "progressbar", "aria-label": label, ...range }, fill);
  return {
    element,
    /**
     * @param {number | null} fraction
     * @param {JobState} state
     */
    set(fraction, state) {
      setAttribute(element, "aria-valuenow", percent(fraction ?? 0));
      fill.style.width = `${percent((fraction ?? 0) * 10) / 10}%`;
      fill.className = `fill is-${state}`;
    },
  };
}

/** The share of each state, e.g. among a pipeline's jobs. Its label gives the numbers. */
export function stateBar() {
  const parts = ORDER.map((state) => ({ state, part: h("span", { class: `part is-${state}` }) }));
  const element = h("span", { class: "bar state-bar", role: "img" }, ...parts.map(({ part }) => part));
  return {
    element,
    /** @param {StateCounts} counts */
    set(counts) {
      for (const { state, part } of parts) {
        const count = counts[state];
        part.hidden = !count;
        // The minimum width keeps one failure among thousands visible.
        part.style.flex = `${count} 0 ${count ? "3px" : "0px"}`;
      }
      const label = ORDER.filter((state) => counts[state]).map((state) => `${counts[state]} ${state}`);
      setAttribute(element, "aria-label", label.join(", ") || "no jobs");
    },
  };
}
