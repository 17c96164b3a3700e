// A small chart that tells no lies: zero at the bottom, units at the axis, gaps where nothing is known.

import { h, svg } from "./dom.js";
import { clock } from "./time.js";

const BOX = { height: 170, left: 46, right: 8, top: 10, bottom: 22 };

/** A round number at or above the largest value, and the marks up to it; `whole`: there are no halves. Pure. */
export function scale(largest, whole = false) {
  if (!(largest > 0)) return { top: 1, marks: [0, 1] };
  const rough = largest / 3;
  const power = whole ? Math.max(1, 10 ** Math.floor(Math.log10(rough))) : 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10]
    .map((factor) => factor * power)
    .find((candidate) => candidate >= rough && (!whole || candidate >= 1));
  const count = Math.ceil(largest / step - 1e-9);
  return {
    top: count * step,
    marks: Array.from({ length: count + 1 }, (_, index) => Number((index * step).toPrecision(12))),
  };
}

/** The stretches without gaps of [time, value] points: what is null, or too far from the one before, begins a new one. Pure. */
export function stretches(points, gap) {
  const found = [];
  let last = null;
  for (const [at, value] of points) {
    if (value === null || value === undefined) {
      last = null;
      continue;
    }
    if (last === null || at - last > gap) found.push([]);
    found.at(-1).push([at, value]);
    last = at;
  }
  return found;
}

/** `width`: of the place it goes to, so that its letters are as large as all others. `series`: [{name, kind, points: [[ms, value|null]]}]; `from`, `to` in ms; `gap`: ms between points beyond which nothing is known. */
export function chart({ title, unit, series, from, to, gap, width = 480, whole = false, format = String }) {
  const { height, left, right, top, bottom } = BOX;
  const values = series.flatMap(({ points }) => points.map(([, value]) => value ?? 0));
  const axis = scale(
    values.reduce((most, value) => Math.max(most, value), 0),
    whole,
  );
  const x = (at) => left + ((at - from) / Math.max(1, to - from)) * (width - left - right);
  const y = (value) => height - bottom - (value / axis.top) * (height - top - bottom);
  const marks = axis.marks.map((value) => [
    svg("line", { class: "rule", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
    svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)),
  ]);
  // Seconds where the marks would otherwise say the same.
  const time = (at) => (to - from < 600000 ? clock(at) : clock(at).replace(/:\d\d(?!:)(?=\D*$)/, ""));
  const times = [0, 0.5, 1].map((share) => {
    const at = from + share * (to - from);
    return svg("text", { x: x(at), y: height - 6, "text-anchor": ["start", "middle", "end"][share * 2] }, time(at));
  });
  const lines = series.map(({ kind, points }) =>
    stretches(points, gap).map((stretch) => {
      if (stretch.length === 1)
        return svg("circle", { class: `dot ${kind}`, cx: x(stretch[0][0]), cy: y(stretch[0][1]), r: 2.5 });
      return svg("path", {
        class: `line ${kind}`,
        d: stretch
          .map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`)
          .join(""),
      });
    }),
  );
  const known = values.length > 0 && series.some(({ points }) => points.some(([, value]) => value !== null));
  const newest = series.map(({ name, points }) => {
    const last = points.findLast(([, value]) => value !== null);
    return `${name}: ${last ? `${format(last[1])} ${unit} at ${clock(last[0])}` : "nothing known"}`;
  });
  return h(
    "figure",
    { class: "chart" },
    h(
      "figcaption",
      {},
      h("b", {}, title),
      h("span", { class: "muted" }, unit),
      h(
        "span",
        { class: "legend" },
        series.map(({ name, kind }) => h("span", {}, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), name)),
      ),
    ),
    svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}. ${newest.join("; ")}` },
      marks,
      times,
      lines,
      known
        ? null
        : svg("text", { x: (left + width) / 2, y: height / 2, "text-anchor": "middle" }, "nothing in this time"),
    ),
  );
}
