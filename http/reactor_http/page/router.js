// The address says what is shown, so that a view can be shared, and back and forward work.

const listeners = new Set();

/** What the address asks for, e.g. {view: "pipelines", state: "failed"}. */
export const read = () => Object.fromEntries(new URLSearchParams(location.search));

/** The address of a view; what is empty is left out. */
export function to(params) {
  const kept = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(kept).toString();
  return query ? `?${query}` : location.pathname;
}

export function go(params, { replace = false } = {}) {
  const target = to(params);
  if (target === (location.search || location.pathname)) return;
  history[replace ? "replaceState" : "pushState"](null, "", target);
  for (const listener of listeners) listener();
}

export function onMove(listener) {
  listeners.add(listener);
  addEventListener("popstate", listener);
}

/** Our own links change the view without loading the page; with a modifier key they open a tab, as any link does. */
export function followLinks() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-view]");
    if (
      !link ||
      event.defaultPrevented ||
      event.button ||
      event.ctrlKey ||
      event.metaKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    event.preventDefault();
    go(Object.fromEntries(new URLSearchParams(link.search)));
  });
}
