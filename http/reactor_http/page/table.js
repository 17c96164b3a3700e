// A table whose rows are drawn while they are in sight; to screen readers it is a table all the same.

import { h, setAttribute } from "./dom.js";
import { Rows } from "./virtual-rows.js";

/** `columns`: [class, heading]; `make(item)` returns {element, update}. */
export function table(name, label, columns, { key, make }) {
  const head = h(
    "div",
    { role: "row", class: "row head", "aria-rowindex": 1 },
    columns.map(([kind, heading]) => h("span", { role: "columnheader", class: kind }, heading)),
  );
  const body = h("div", { role: "rowgroup", class: "body" });
  const element = h(
    "div",
    { role: "table", "aria-label": label, class: `table ${name}` },
    h("div", { role: "rowgroup" }, head),
    body,
  );
  let rows = null;
  return {
    element,
    show(items) {
      element.hidden = !items.length;
      setAttribute(element, "aria-rowcount", items.length + 1);
      rows ??= new Rows(body, { key, make });
      if (element.isConnected) rows.show(items);
    },
    close: () => rows?.close(),
  };
}

export const cell = (kind, ...children) => h("span", { role: "cell", class: kind }, ...children);
