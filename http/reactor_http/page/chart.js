// @ts-check
// A line chart: the axis starts at zero and has units, and gaps show where nothing is known.

import { h, svg } from "./dom.js";
import { clock } from "./time.js";

/** @import { Point, Series } from "./types.js" */

const BOX = { height: 170, left: 46, right: 8, top: 10, bottom: 22 };
const TEN_MINUTES = 600000;
const ANCHORS = ["start", "middle", "end"];

/**
 * A round number at or above the largest value, and the marks up to it. `whole`: whole numbers only.
 *
 * @param {number} largest
 * @param {boolean} [whole]
 */
export function scale(largest, whole = false) {
  if (!(largest > 0)) return { top: 1, marks: [0, 1] };
  const rough = largest / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const base = whole ? Math.max(1, power) : power;
  const step = base * ([1, 2, 5].find((factor) => factor * base >= rough) ?? 10);
  const count = Math.ceil(largest / step - 1e-9);
  const marks = Array.from({ length: count + 1 }, (_, index) => Number((index * step).toPrecision(12)));
  return { top: count * step, marks };
}

/**
 * The segments without gaps. A null, or a point farther than `gap` from the previous one, starts a new segment.
 *
 * @param {Point[]} points
 * @param {number} gap
 * @returns {[number, number][][]}
 */
export function segments(points, gap) {
  /** @type {[number, number][][]} */
  const found = [];
  /** @type {number | null} */
  let previous = null;
  for (const [at, value] of points) {
    if (value === null) {
      previous = null;
      continue;
    }
    if (previous === null || at - previous > gap) found.push([]);
    found.at(-1)?.push([at, value]);
    previous = at;
  }
  return found;
}

/**
 * @typedef {object} ChartOptions
 * @property {string} title
 * @property {string} unit
 * @property {Series[]} series
 * @property {number} from milliseconds
 * @property {number} to milliseconds
 * @property {number} gap milliseconds between points beyond which nothing is known
 * @property {number} [width] of the chart's place in pixels, so that its text has the size of the page's text
 * @property {boolean} [whole]
 * @property {(value: number) => string} [format]
 */

/** @param {ChartOptions} options */
export function chart({ title, unit, series, from, to, gap, width = 480, whole = false, format = String }) {
  const { height, left, right, top, bottom } = BOX;
  const values = series.flatMap(({ points }) => points.flatMap(([, value]) => value ?? []));
  const largest = values.reduce((most, value) => Math.max(most, value), 0);
  const axis = scale(largest, whole);
  /** @param {number} at */
  const x = (at) => left + ((at - from) / Math.max(1, to - from)) * (width - left - right);
  /** @param {number} value */
  const y = (value) => height - bottom - (value / axis.top) * (height - top - bottom);

  const marks = axis.marks.map((value) => [
    svg("line", { class: "rule", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
    svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)),
  ]);
  const times = ANCHORS.map((anchor, index) => {
    const at = from + (index / 2) * (to - from);
    return svg("text", { x: x(at), y: height - 6, "text-anchor": anchor }, timeLabel(at, to - from));
  });
  const lines = series.map(({ kind, points }) => segments(points, gap).map((segment) => line(segment, kind, x, y)));
  const empty = { x: (left + width) / 2, y: height / 2, "text-anchor": "middle" };
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label(title, unit, series, format) },
    marks,
    times,
    lines,
    values.length ? null : svg("text", empty, "no data"),
  );
  return h("figure", { class: "chart" }, caption(title, unit, series), picture);
}

/**
 * @param {[number, number][]} segment
 * @param {string} kind
 * @param {(at: number) => number} x
 * @param {(value: number) => number} y
 */
function line(segment, kind, x, y) {
  if (segment.length === 1) {
    const [at, value] = segment[0];
    return svg("circle", { class: `dot ${kind}`, cx: x(at), cy: y(value), r: 2.5 });
  }
  const path = segment.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
  return svg("path", { class: `line ${kind}`, d: path.join("") });
}

/**
 * With seconds only where the labels would be equal without them.
 *
 * @param {number} at
 * @param {number} span
 */
const timeLabel = (at, span) => (span < TEN_MINUTES ? clock(at) : clock(at).replace(/:\d\d(?!:)(?=\D*$)/, ""));

/**
 * For screen readers: the newest value of each series.
 *
 * @param {string} title
 * @param {string} unit
 * @param {Series[]} series
 * @param {(value: number) => string} format
 */
function label(title, unit, series, format) {
  const newest = series.map(({ name, points }) => {
    const [at, value] = points.findLast((point) => point[1] !== null) ?? [0, null];
    return `${name}: ${value === null ? "no data" : `${format(value)} ${unit} at ${clock(at)}`}`;
  });
  return `${title}. ${newest.join("; ")}`;
}

/**
 * @param {string} title
 * @param {string} unit
 * @param {Series[]} series
 */
function caption(title, unit, series) {
  const legend = series.map(({ name, kind }) =>
    h("span", {}, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), name),
  );
  return h(
    "figcaption",
    {},
    h("b", {}, title),
    h("span", { class: "muted" }, unit),
    h("span", { class: "legend" }, legend),
  );
}
