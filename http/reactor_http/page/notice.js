// @ts-check
// Shows the result of an action in the corner of the page.

import { byId, h } from "./dom.js";

const SHOWN_MS = 12000;
const MAX_NOTICES = 3;

/**
 * @param {string} text
 * @param {{ isError?: boolean }} [options]
 */
export function showNotice(text, { isError = false } = {}) {
  const element = h("p", { class: isError ? "notice danger" : "notice" }, h("span", {}, text));
  const close = () => element.remove();
  element.append(h("button", { class: "plain-button", type: "button", "aria-label": "Dismiss", click: close }, "×"));
  const list = byId("notices");
  list.append(element);
  while (list.childElementCount > MAX_NOTICES) list.firstElementChild?.remove();
  // An error stays until the user dismisses it.
  if (!isError) setTimeout(close, SHOWN_MS);
}
