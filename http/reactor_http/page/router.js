// @ts-check
// Keeps the state of the view in the page's address, so that it can be shared, and back and forward work.

/** @import { Params } from "./types.js" */

/** @type {Set<() => void>} */
const listeners = new Set();

/**
 * The query of the address, e.g. {view: "overview", minutes: "60"}.
 *
 * @returns {Params}
 */
export const readParams = () => Object.fromEntries(new URLSearchParams(location.search));

/**
 * The address of a view. Empty parameters are left out.
 *
 * @param {Record<string, string | number | null | undefined> | Params} params
 */
export function hrefTo(params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `?${text}` : location.pathname;
}

/**
 * Shows another view. `replace`: without an entry of its own in the browser's history.
 *
 * @param {Record<string, string | number | null | undefined> | Params} params
 * @param {{ replace?: boolean }} [options]
 */
export function navigate(params, { replace = false } = {}) {
  const target = hrefTo(params);
  if (target === (location.search || location.pathname)) return;
  history[replace ? "replaceState" : "pushState"](null, "", target);
  for (const listener of listeners) listener();
}

/** @param {() => void} listener */
export function onNavigate(listener) {
  listeners.add(listener);
  addEventListener("popstate", listener);
}

/** Links marked with data-view change the view without loading the page; with a modifier key they act as any link. */
export function interceptLinks() {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-view]") : null;
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(Object.fromEntries(new URLSearchParams(link.search)));
  });
}
