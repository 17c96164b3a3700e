// @ts-check
// Draws only the visible rows of a long list. The page itself scrolls, as users expect on a phone.

import { setAttribute, setChildren } from "./dom.js";

/** @import { Updatable } from "./types.js" */

const OVERSCAN_ROWS = 8; // rows drawn above and below the visible ones, so that scrolling shows them at once
const DEFAULT_HEIGHT = 40;
const HEADER_PIXELS = 80; // at the top of the window, where the page's header covers rows

/** @type {Record<string, number>} */
const KEY_STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

/**
 * @template Item
 * @typedef {Updatable<Item> & { index: number }} Row
 */

/** @template Item */
export class VirtualRows {
  #body;
  #key;
  #makeRow;
  /** @type {Item[]} */
  #items = [];
  /** @type {Map<string | number, Row<Item>>} */
  #drawn = new Map();
  #rowHeight = 0;
  #isDrawRequested = false;

  /**
   * The height of a row is the style sheet's `--row-height`.
   *
   * @param {HTMLElement} body
   * @param {{ key: (item: Item) => string | number, makeRow: () => Updatable<Item> }} rows
   */
  constructor(body, { key, makeRow }) {
    this.#body = body;
    this.#key = key;
    this.#makeRow = makeRow;
    body.classList.add("virtual-rows");
    this.#measure();
    addEventListener("scroll", this.#onScroll, { passive: true });
    addEventListener("resize", this.#onResize);
    body.addEventListener("keydown", this.#onKeydown);
  }

  close() {
    removeEventListener("scroll", this.#onScroll);
    removeEventListener("resize", this.#onResize);
  }

  /** @param {Item[]} items */
  show(items) {
    this.#items = items;
    this.#draw();
  }

  #draw() {
    if (!this.#rowHeight) this.#measure();
    const height = this.#rowHeight || DEFAULT_HEIGHT;
    const top = this.#body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / height) - OVERSCAN_ROWS);
    const last = Math.min(this.#items.length, Math.ceil((innerHeight - top) / height) + OVERSCAN_ROWS);
    this.#body.style.height = `${this.#items.length * height}px`;
    /** @type {Map<string | number, Row<Item>>} */
    const kept = new Map();
    this.#items.slice(first, last).forEach((item, offset) => {
      const key = this.#key(item);
      kept.set(key, this.#drawRow(this.#drawn.get(key), item, first + offset, height));
    });
    const elements = [...kept.values()].map((row) => row.element);
    for (const [key, row] of this.#drawn) {
      // A row that has the focus stays, or scrolling away from it would lose the focus.
      if (kept.has(key) || !row.element.contains(document.activeElement)) continue;
      kept.set(key, row);
      if (row.index < first) elements.unshift(row.element);
      else elements.push(row.element);
    }
    this.#drawn = kept;
    setChildren(this.#body, elements);
  }

  /**
   * @param {Row<Item> | undefined} existing
   * @param {Item} item
   * @param {number} index
   * @param {number} height
   */
  #drawRow(existing, item, index, height) {
    const row = existing ?? { ...this.#makeRow(), index };
    row.update(item);
    row.index = index;
    row.element.style.transform = `translateY(${index * height}px)`;
    setAttribute(row.element, "aria-rowindex", index + 2);
    return row;
  }

  #measure() {
    this.#rowHeight = parseFloat(getComputedStyle(this.#body).getPropertyValue("--row-height")) || 0;
  }

  #onScroll = () => {
    if (this.#isDrawRequested || !this.#body.isConnected) return;
    this.#isDrawRequested = true;
    requestAnimationFrame(() => {
      this.#isDrawRequested = false;
      this.#draw();
    });
  };

  #onResize = () => {
    this.#measure();
    if (this.#body.isConnected) this.#draw();
  };

  /**
   * Moves the focus from row to row, also to rows that are not drawn yet.
   *
   * @param {KeyboardEvent} event
   */
  #onKeydown = (event) => {
    const step = KEY_STEPS[event.key];
    const row = [...this.#drawn.values()].find(({ element }) => element.contains(document.activeElement));
    if (!step || !row) return;
    event.preventDefault();
    const index = Math.min(this.#items.length - 1, Math.max(0, row.index + step));
    const top = this.#body.getBoundingClientRect().top + index * this.#rowHeight;
    const bottom = top + this.#rowHeight;
    if (top < HEADER_PIXELS) scrollBy(0, top - HEADER_PIXELS);
    else if (bottom > innerHeight) scrollBy(0, bottom - innerHeight);
    this.#draw();
    const target = this.#drawn.get(this.#key(this.#items[index]))?.element.querySelector("a, button");
    if (target instanceof HTMLElement) target.focus({ preventScroll: true });
  };
}
