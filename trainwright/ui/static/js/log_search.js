// Search in a log: the next hit at once, and the number of all hits as the server counts them, portion by portion.
const MAX_HITS = 200000;

/**
 * A search in one log. `ask(parameters)` returns a portion: `{lines, next, done, total}`. `onChange` is called with every change
 * of `count`, `hits`, `current`, `isCounting` and `problem`.
 */
export class LogSearch {
  constructor(ask, onChange) {
    this.ask = ask;
    this.onChange = onChange;
    this.turn = 0;
    this.clear();
  }

  /** Forgets what was searched for. */
  clear() {
    this.turn += 1;
    Object.assign(this, { pattern: null, hits: [], count: 0, counted: 0, current: null, isCounting: false, problem: null });
    this.onChange();
  }

  /** Searches for a pattern `{text, expression, case}`. @returns the first line with it from `from` on, else of all, or null. */
  async start(pattern, from) {
    this.clear();
    if (!pattern.text) return null;
    this.pattern = pattern;
    const found = this.step("forward", from);
    this.countOn();
    return found;
  }

  /** Moves to the hit after or before a line, around the ends of the log. @returns {Promise<number|null>} its line. */
  async step(direction, from) {
    if (!this.pattern) return null;
    const turn = this.turn;
    try {
      let found = await this.find(direction, from, turn);
      if (found === null && !this.hasNone()) {
        found = await (direction === "forward" ? this.find(direction, 0, turn, from) : this.find(direction, undefined, turn));
      }
      if (turn !== this.turn) return null;
      this.current = found;
      this.onChange();
      return found;
    } catch (problem) {
      this.fail(problem, turn);
      return null;
    }
  }

  /** Goes on counting in a log that has grown. */
  async countOn() {
    if (!this.pattern || this.isCounting || this.problem) return;
    const turn = this.turn;
    this.isCounting = true;
    try {
      for (let done = false; !done; ) {
        const portion = await this.ask({ ...this.pattern, from: this.counted });
        if (turn !== this.turn) return;
        this.count += portion.lines.length;
        if (this.hits.length < MAX_HITS) this.hits.push(...portion.lines);
        this.counted = portion.next;
        done = portion.done;
        this.onChange();
      }
      this.isCounting = false;
      this.onChange();
    } catch (problem) {
      this.fail(problem, turn);
    }
  }

  /** @returns {number} the place of a line among the hits, from 0; negative if it is none of those that are known. */
  placeOf(line) {
    let [low, high] = [0, this.hits.length - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.hits[middle] === line) return middle;
      if (this.hits[middle] < line) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  /** Whether the whole log was searched, and has no hits. */
  hasNone() {
    return !this.isCounting && this.count === 0;
  }

  async find(direction, from, turn, until) {
    for (let start = from; turn === this.turn; ) {
      const backward = direction === "forward" ? "" : "1";
      const portion = await this.ask({ ...this.pattern, backward, from: start, until, limit: 1 });
      if (portion.lines.length) return portion.lines[0];
      if (portion.done) return null;
      start = portion.next;
    }
    return null;
  }

  fail(problem, turn) {
    if (turn !== this.turn) return;
    Object.assign(this, { problem, isCounting: false });
    this.onChange();
  }
}
