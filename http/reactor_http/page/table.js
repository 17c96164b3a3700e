// @ts-check
// A table that keeps only the visible rows in the document; to screen readers it is an ordinary table.

import { h, setAttribute } from "./dom.js";
import { VirtualRows } from "./virtual-rows.js";

/** @import { Child, Updatable } from "./types.js" */

/** @typedef {readonly [className: string, heading: string]} Column */

/**
 * @template Item
 * @param {string} className
 * @param {string} label
 * @param {readonly Column[]} columns
 * @param {{ key: (item: Item) => string | number, makeRow: () => Updatable<Item> }} rows
 */
export function table(className, label, columns, { key, makeRow }) {
  const headings = columns.map(([kind, heading]) => h("span", { role: "columnheader", class: kind }, heading));
  const head = h("div", { role: "row", class: "row head", "aria-rowindex": 1 }, headings);
  const body = h("div", { role: "rowgroup", class: "body" });
  const content = [h("div", { role: "rowgroup" }, head), body];
  const element = h("div", { role: "table", "aria-label": label, class: `table ${className}` }, content);
  /** @type {VirtualRows<Item> | null} */
  let rows = null;
  return {
    element,
    head,
    /** @param {Item[]} items */
    show(items) {
      element.hidden = !items.length;
      setAttribute(element, "aria-rowcount", items.length + 1);
      rows ??= new VirtualRows(body, { key, makeRow });
      if (element.isConnected) rows.show(items);
    },
    close: () => rows?.close(),
  };
}

/**
 * @param {string} className
 * @param {...Child} children
 */
export const cell = (className, ...children) => h("span", { role: "cell", class: className }, ...children);
