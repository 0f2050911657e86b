// The lines of a log that the page has, by number: read in pages when they come into view, and forgotten when there are too many.
const PAGE = 200;
const MAX_PAGES = 150;

/** Pages of one log. `load(from, count)` returns `{from, lines, times}`; `onChange` is called when lines have arrived. */
export class LogLines {
  constructor(load, onChange) {
    this.load = load;
    this.onChange = onChange;
    this.pages = new Map();
    this.wanted = null;
    this.isBusy = false;
    this.problem = null;
  }

  /** @returns {{text: string, time: string}|null} a line, or null if it has not been read yet. */
  line(number) {
    const page = this.pages.get(Math.floor(number / PAGE));
    const place = number % PAGE;
    return page && place < page.lines.length ? { text: page.lines[place], time: page.times[place] } : null;
  }

  /** Reads the lines from `first` to before `last`, of `total`, that are missing, instead of those that were wanted before. */
  want(first, last, total) {
    this.wanted = { first, last: Math.min(last, total), total };
    if (!this.isBusy) this.read();
  }

  async read() {
    this.isBusy = true;
    for (let gap = this.gap(); gap && !this.isClosed; gap = this.gap()) {
      try {
        const answer = await this.load(gap.from, gap.count);
        this.problem = null;
        if (!answer.lines.length) break;
        this.store(answer);
      } catch (problem) {
        this.problem = problem;
        break;
      }
      if (!this.isClosed) this.onChange();
    }
    this.isBusy = false;
    if (this.problem && !this.isClosed) this.onChange();
  }

  /** Stops reading. */
  close() {
    this.isClosed = true;
  }

  gap() {
    const { first, last, total } = this.wanted;
    for (let number = Math.floor(first / PAGE); number * PAGE < last; number += 1) {
      const known = this.pages.get(number)?.lines.length || 0;
      const count = Math.min(PAGE, total - number * PAGE) - known;
      if (count > 0 && number * PAGE + known < last) return { from: number * PAGE + known, count };
    }
    return null;
  }

  store({ from, lines, times }) {
    const number = Math.floor(from / PAGE);
    const page = this.pages.get(number) || { lines: [], times: [] };
    if (from % PAGE !== page.lines.length) return;
    this.pages.delete(number);
    this.pages.set(number, { lines: [...page.lines, ...lines], times: [...page.times, ...times] });
    while (this.pages.size > MAX_PAGES) this.pages.delete(this.pages.keys().next().value);
  }
}
