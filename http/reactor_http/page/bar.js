// A progress bar: one fill, or one part per state.

import { h, setAttribute } from "./dom.js";

const ORDER = ["completed", "partial", "failed", "cancelled", "running", "pending", "waiting"];

export function bar(label) {
  const fill = h("span", { class: "fill" });
  const element = h("span", { class: "bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, fill);
  return {
    element,
    set(fraction, state = "running") {
      const percent = Math.floor((fraction ?? 0) * 1000) / 10;
      setAttribute(element, "aria-valuenow", Math.floor(percent));
      fill.style.width = `${percent}%`;
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
