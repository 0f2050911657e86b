// The lines of a log that the page has: the end of the log, and what has followed since. The search is in these lines alone.
export const MAX_BYTES = 20000000; // of lines of 33 bytes at least, which browsers can show in one element

/** `lines` are `[time, text]`. `shift` is how far their numbers have moved since the first lines came. */
export class LogLines {
  lines = [];
  bytes = 0;
  shift = 0;
  isCut = false;

  /** Adds the lines of a longer tail `{lines, cut}` that are before those that are here. */
  prepend({ lines, cut }) {
    const [first] = this.lines;
    const before = first ? lines.slice(0, Math.max(0, lines.findIndex((each) => each.join() === first.join()))) : lines;
    if (first) this.shift += before.length;
    this.isCut = cut;
    this.lines = [...before, ...this.lines];
    this.bytes += sizeOf(before);
  }

  /** Prepares for a connection that repeats the lines of the last second. @returns {string} the time after which it begins. */
  resume() {
    const last = Date.parse(this.lines.at(-1)?.[0]);
    const first = Math.max(0, this.lines.findLastIndex(([time]) => Date.parse(time) < last - 1000));
    this.repeats = new Map();
    for (const [time] of this.lines.slice(first)) this.repeats.set(time, (this.repeats.get(time) || 0) + 1);
    return this.lines[first]?.[0] || "";
  }

  /** Adds the lines that a connection does not repeat; of too many, the oldest are forgotten. */
  append(lines) {
    const isFresh = ([time]) => {
      const left = this.repeats.get(time) || 0;
      this.repeats.set(time, left - 1);
      return left <= 0;
    };
    const fresh = lines.filter(isFresh);
    this.bytes += sizeOf(fresh);
    for (const line of fresh) this.lines.push(line);
    if (this.bytes <= MAX_BYTES) return;
    const dropped = this.lines.splice(0, this.lines.length >> 1);
    this.bytes -= sizeOf(dropped);
    this.shift -= dropped.length;
    this.isCut = true;
  }
}

/** The numbers of the lines that have a text or, with `expression`, match a regular expression; `case` makes it case-sensitive. */
export class LogSearch {
  hits = [];
  places = new Map();
  counted = 0;

  constructor({ text, expression, case: isSensitive }) {
    try {
      const source = expression ? text : text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
      this.pattern = text ? new RegExp(source, isSensitive ? "g" : "gi") : null;
    } catch (error) {
      this.problem = error;
    }
  }

  /** Searches the lines that it has not seen yet. */
  countOn(lines) {
    for (; this.pattern && this.counted < lines.length; this.counted += 1) {
      if (lines[this.counted][1].search(this.pattern) >= 0) this.places.set(this.counted, this.hits.push(this.counted));
    }
  }

  /** @returns {number|undefined} the hit from a line on, or the one before it, around the ends. */
  next(line, isBackward) {
    if (isBackward) return this.hits.findLast((hit) => hit < line) ?? this.hits.at(-1);
    return this.hits.find((hit) => hit >= line) ?? this.hits[0];
  }
}

function sizeOf(lines) {
  return lines.reduce((sum, [time, text]) => sum + time.length + text.length + 2, 0);
}
