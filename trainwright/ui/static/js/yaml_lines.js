// YAML as lines with their contributors, and the selection of those of some contributors with the lines that they are part of.

/** @returns {{number, text, by}[]} the lines of YAML from the server; `by` is the contributor, empty where there are several. */
export function annotatedLines({ text, contributors, runs }) {
  const lines = plainLines(text);
  let number = 0;
  for (const [count, index] of runs) {
    for (const end = number + count; number < end && number < lines.length; number += 1) lines[number].by = contributors[index];
  }
  return lines;
}

/** @returns {{number, text, by}[]} lines without contributors. */
export function plainLines(text) {
  if (!text) return [];
  return text.replace(/\n$/, "").split("\n").map((line, number) => ({ number, text: line, by: "" }));
}

/** @returns the lines of these contributors, and as context the lines that open what they are in; all lines if none is given. */
export function linesOf(lines, contributors) {
  if (!contributors.length) return lines;
  const kept = new Map();
  const open = [];
  for (const line of lines) {
    const depth = depthOf(line.text);
    if (depth !== null) {
      while (open.length && open.at(-1).depth >= depth) open.pop();
      open.push({ depth, line });
    }
    if (!contributors.includes(line.by)) continue;
    for (const each of open) if (!kept.has(each.line.number)) kept.set(each.line.number, contextOf(each.line, contributors));
    kept.set(line.number, line);
  }
  return [...kept.values()].sort((one, other) => one.number - other.number);
}

function contextOf(line, contributors) {
  return contributors.includes(line.by) ? line : { ...line, isContext: true };
}

/** How deep a line is: an element of a list is deeper than the line that opens the list, which has the same indentation. */
function depthOf(text) {
  if (!text.trim()) return null;
  const indentation = text.length - text.trimStart().length;
  return 2 * indentation + (/^\s*- /.test(text) ? 1 : 0);
}
