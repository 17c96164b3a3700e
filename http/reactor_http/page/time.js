// @ts-check
// Formats durations, ages and dates, by the server's clock.

let serverAheadMs = 0;

/**
 * Sets the server's clock from a Date header. The header has whole seconds, so smaller differences count as none.
 *
 * @param {string} serverDate
 */
export function setClock(serverDate) {
  const difference = Date.parse(serverDate) - Date.now();
  serverAheadMs = Math.abs(difference) > 2000 ? difference : 0;
}

/** Milliseconds by the server's clock. */
export const now = () => Date.now() + serverAheadMs;

/** @param {string} iso */
export const toMs = (iso) => Date.parse(iso);

/**
 * Milliseconds, or null without a time.
 *
 * @param {string | null} iso
 */
export const toMsOrNull = (iso) => (iso ? Date.parse(iso) : null);

/**
 * Seconds between two times; without an end, until now.
 *
 * @param {string | null} start
 * @param {string | null} [end]
 */
export function secondsBetween(start, end) {
  if (!start) return null;
  return Math.max(0, ((end ? Date.parse(end) : now()) - Date.parse(start)) / 1000);
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/**
 * How long ago. Coarser than a duration: it changes while it is read.
 *
 * @param {string | null} iso
 */
export function age(iso) {
  const seconds = secondsBetween(iso);
  if (seconds === null) return "–";
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/**
 * The time of day.
 *
 * @param {number} ms
 */
export const clock = (ms) =>
  new Date(ms).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/**
 * The time of day, with milliseconds.
 *
 * @param {string} iso
 */
export function time(iso) {
  return new Date(iso).toLocaleTimeString("en-GB", {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
  });
}

/** @param {string | null} iso */
export function date(iso) {
  if (!iso) return "–";
  const isThisYear = new Date(iso).getFullYear() === new Date(now()).getFullYear();
  return new Date(iso).toLocaleString(undefined, {
    year: isThisYear ? undefined : "numeric",
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
}

/**
 * A number with thousands separators.
 *
 * @param {number} value
 */
export const number = (value) => value.toLocaleString("en");
