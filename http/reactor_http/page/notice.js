// Tells the person what came of what they did.

import { h } from "./dom.js";

const SHOWN = 12000;

export function notice(words, { wrong = false } = {}) {
  const element = h("p", { class: wrong ? "notice wrong" : "notice" }, h("span", {}, words));
  const close = () => element.remove();
  element.append(h("button", { class: "plain", type: "button", "aria-label": "Dismiss", click: close }, "×"));
  const place = document.getElementById("notices");
  place.append(element);
  while (place.childElementCount > 3) place.firstChild.remove();
  // What went wrong stays until it was read.
  if (!wrong) setTimeout(close, SHOWN);
}
