// Shows a long list by drawing only the rows in sight. The page itself scrolls, as people expect on a phone.

import { setAttribute, setChildren } from "./dom.js";

const BEYOND = 8; // rows drawn above and below what is seen, so that scrolling finds them there

export class Rows {
  #body;
  #key;
  #make;
  #items = [];
  #drawn = new Map();
  #height = 0;
  #wait = false;

  /** `make(item)` returns {element, update(item)}; the height of a row is the style sheet's `--row`. */
  constructor(body, { key, make }) {
    this.#body = body;
    this.#key = key;
    this.#make = make;
    body.classList.add("windowed");
    this.#measure();
    addEventListener("scroll", this.#scrolled, { passive: true });
    addEventListener("resize", this.#resized);
    body.addEventListener("keydown", this.#pressed);
  }

  close() {
    removeEventListener("scroll", this.#scrolled);
    removeEventListener("resize", this.#resized);
  }

  show(items) {
    this.#items = items;
    this.draw();
  }

  draw() {
    if (!this.#height) this.#measure();
    const height = this.#height || 40;
    const top = this.#body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / height) - BEYOND);
    const last = Math.min(this.#items.length, Math.ceil((innerHeight - top) / height) + BEYOND);
    this.#body.style.height = `${this.#items.length * height}px`;
    const kept = new Map();
    const elements = [];
    for (let index = first; index < last; index += 1) {
      const item = this.#items[index];
      const key = this.#key(item);
      const row = this.#drawn.get(key) ?? this.#make(item);
      row.update(item);
      row.index = index;
      row.element.style.transform = `translateY(${index * height}px)`;
      setAttribute(row.element, "aria-rowindex", index + 2);
      kept.set(key, row);
      elements.push(row.element);
    }
    for (const [key, row] of this.#drawn) {
      // Whoever scrolls away from the row with the focus must not lose it.
      if (!kept.has(key) && row.element.contains(document.activeElement)) {
        kept.set(key, row);
        if (row.index < first) elements.unshift(row.element);
        else elements.push(row.element);
      }
    }
    this.#drawn = kept;
    setChildren(this.#body, elements);
  }

  #measure() {
    this.#height = parseFloat(getComputedStyle(this.#body).getPropertyValue("--row")) || 0;
  }

  #scrolled = () => {
    if (this.#wait || !this.#body.isConnected) return;
    this.#wait = true;
    requestAnimationFrame(() => {
      this.#wait = false;
      this.draw();
    });
  };

  #resized = () => {
    this.#measure();
    if (this.#body.isConnected) this.draw();
  };

  /** Up and down go from row to row, also to those that are not drawn yet. */
  #pressed = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (!step) return;
    const row = [...this.#drawn.values()].find(({ element }) => element.contains(document.activeElement));
    if (!row) return;
    event.preventDefault();
    const index = Math.min(this.#items.length - 1, Math.max(0, row.index + step));
    const top = this.#body.getBoundingClientRect().top + index * this.#height;
    if (top < 80) scrollBy(0, top - 80);
    else if (top + this.#height > innerHeight) scrollBy(0, top + this.#height - innerHeight);
    this.draw();
    this.#drawn.get(this.#key(this.#items[index]))?.element.querySelector("a, button")?.focus({ preventScroll: true });
  };
}
