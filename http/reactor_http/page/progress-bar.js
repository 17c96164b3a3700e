// A progress bar: one fill, or one part per state.

import { h, setAttribute } from "./dom.js";

const ORDER = ["completed", "partial", "failed", "cancelled", "running", "pending", "waiting"];

/** Whole percents, rounded down: only what is done is 100. (29 of 100 is 28.999999999999996 of them, as JavaScript reckons.) */
export const percent = (fraction) => Math.floor(fraction * 100 + 1e-6);

export function bar(label) {
  const fill = h("span", { class: "fill" });
  const element = h(
    "span",
    { class: "bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 },
    fill,
  );
  return {
    element,
    set(fraction, state = "running") {
      setAttribute(element, "aria-valuenow", percent(fraction ?? 0));
      fill.style.width = `${percent((fraction ?? 0) * 10) / 10}%`;
      fill.className = `fill is-${state}`;
    },
  };
}

/** Shares of the whole by state, e.g. of a pipeline's jobs; the words for it stand in `aria-label`. */
export function shares() {
  const parts = new Map(ORDER.map((state) => [state, h("span", { class: `part is-${state}` })]));
  const element = h("span", { class: "bar shares", role: "img" }, [...parts.values()]);
  return {
    element,
    set(counts) {
      const all = ORDER.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
      for (const [state, part] of parts) {
        const share = counts[state] ?? 0;
        part.hidden = !share;
        // One failure among thousands must still be seen.
        part.style.flex = `${share} 0 ${share ? "3px" : "0px"}`;
      }
      const words = ORDER.filter((state) => counts[state]).map((state) => `${counts[state]} ${state}`);
      setAttribute(element, "aria-label", all ? words.join(", ") : "no jobs");
    },
  };
}
