// Draws at most once per frame, however many events arrive.

/** `draw` is called in a frame soon after `request`; at least `gap()` milliseconds after the last time. */
export class Frame {
  #draw;
  #gap;
  #asked = false;
  #last = 0;
  #timer = null;
  #closed = false;
  #tick;

  constructor(draw, gap = () => 0) {
    this.#draw = draw;
    this.#gap = gap;
    // Ages and durations grow without any event.
    this.#tick = setInterval(() => this.request(), 1000);
  }

  request() {
    if (this.#asked || this.#closed) return;
    this.#asked = true;
    const wait = this.#last + this.#gap() - performance.now();
    if (wait > 0) this.#timer = setTimeout(() => this.#soon(), wait);
    else this.#soon();
  }

  #soon() {
    requestAnimationFrame(() => {
      this.#asked = false;
      if (this.#closed) return;
      this.#draw();
      this.#last = performance.now();
    });
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearInterval(this.#tick);
  }
}
