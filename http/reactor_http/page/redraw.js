// @ts-check
// Redraws at most once per frame, however many events arrive.

const TICK_MS = 1000;

export class Redraw {
  #draw;
  #minGapMs;
  #isRequested = false;
  #isClosed = false;
  #lastDrawn = 0;
  /** @type {number | undefined} */
  #timer;
  #tick;

  /**
   * `draw` is called in a frame soon after `request`, and at least `minGapMs()` after the previous call.
   *
   * @param {() => void} draw
   * @param {() => number} [minGapMs]
   */
  constructor(draw, minGapMs = () => 0) {
    this.#draw = draw;
    this.#minGapMs = minGapMs;
    // Ages and durations grow without any event.
    this.#tick = setInterval(() => this.request(), TICK_MS);
  }

  request() {
    if (this.#isRequested || this.#isClosed) return;
    this.#isRequested = true;
    const wait = this.#lastDrawn + this.#minGapMs() - performance.now();
    if (wait > 0) this.#timer = setTimeout(() => this.#drawInNextFrame(), wait);
    else this.#drawInNextFrame();
  }

  #drawInNextFrame() {
    requestAnimationFrame(() => {
      this.#isRequested = false;
      if (this.#isClosed) return;
      this.#draw();
      this.#lastDrawn = performance.now();
    });
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    clearInterval(this.#tick);
  }
}
