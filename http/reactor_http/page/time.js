// Says how long and how long ago, by the server's clock.

let ahead = 0; // milliseconds by which the server's clock is ahead of this one

/** From a Date header, which has whole seconds: smaller differences are taken for none. */
export function setClock(serverDate) {
  const difference = Date.parse(serverDate) - Date.now();
  ahead = Math.abs(difference) > 2000 ? difference : 0;
}

export const now = () => Date.now() + ahead;

export const moment = (iso) => (iso ? Date.parse(iso) : null);

/** Seconds between two times; an end that is missing is now. */
export function between(start, end) {
  if (!start) return null;
  return Math.max(0, ((end ? Date.parse(end) : now()) - Date.parse(start)) / 1000);
}

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

/** Coarser, since it is read at a glance and changes while one reads. */
export function age(iso) {
  const seconds = between(iso);
  if (seconds === null) return "–";
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

export const clock = (value) =>
  new Date(value).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function date(iso) {
  if (!iso) return "–";
  const year = new Date(iso).getFullYear() === new Date(now()).getFullYear() ? undefined : "numeric";
  return new Date(iso).toLocaleString(undefined, {
    year,
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
}

export const number = (value) => value.toLocaleString("en");
