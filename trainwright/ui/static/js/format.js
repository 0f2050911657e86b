// Times, durations, sizes and numbers as people read them.

const UNITS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** @returns {string} `2 d 3 h`, `41 s`: the two largest units. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  let rest = Math.max(0, Math.round(seconds));
  if (rest < 1) return "0 s";
  const first = UNITS.findIndex(([size]) => rest >= size);
  return UNITS.slice(first, first + 2)
    .map(([size, unit]) => {
      const count = Math.floor(rest / size);
      rest -= count * size;
      return count ? `${count} ${unit}` : "";
    })
    .filter(Boolean)
    .join(" ");
}

/** @returns {number} seconds from one time to another, or to now. */
export function secondsBetween(from, until) {
  return ((until ? Date.parse(until) : Date.now()) - Date.parse(from)) / 1000;
}

/** @returns {string} the time of day and the date where the reader is. */
export function localTime(text) {
  const moment = new Date(text);
  return Number.isNaN(moment.getTime()) ? text || "" : moment.toLocaleString();
}

/** @returns {string} `1.2 GB` */
export function bytes(count) {
  if (!Number.isFinite(count)) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** @returns {string} a figure with at most `digits` significant digits. */
export function figure(value, digits = 5) {
  const number = typeof value === "number" ? value : Number(value);
  if (value === "" || value === null || value === undefined) return "";
  if (!Number.isFinite(number)) return String(value);
  if (Number.isInteger(number) && Math.abs(number) < 1e9) return number.toLocaleString("en");
  return String(Number(number.toPrecision(digits)));
}

/** @returns {string} `1 pod`, `3 pods` */
export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}
