// Shows Markdown that others have written as elements: headings, tables, lists, code, emphasis and links to http(s) addresses.
// Everything else is text. There is no way from here to HTML, images or scripts.
import { html } from "./dom.js";
import { OutLink } from "./widgets.js";

const MAX_LINES = 5000;
const MAX_INLINE = 4000;
const MAX_MARKS = 200;
const INLINE =
  /\\([\\`*_{}[\]()#+!|~<>&$:@.-])|(`+)(.*?[^`])\2(?!`)|\*\*([^*]+)\*\*|!\[([^[\]]*)\]\([^\s()]*\)|\[([^[\]]*)\]\((https?:\/\/[^\s()]+)\)/g;

/** `text` is Markdown; more than 5,000 lines are cut off. */
export function Markdown({ text }) {
  const lines = text.split("\n");
  const isCut = lines.length > MAX_LINES;
  return html`<div class="markdown">
    ${blocks(lines.slice(0, MAX_LINES))}${isCut ? html`<p class="muted">The rest is not shown.</p>` : ""}
  </div>`;
}

function blocks(lines) {
  const found = [];
  let at = 0;
  if (lines[0] === "---") {
    const end = lines.indexOf("---", 1);
    if (end > 0) {
      found.push(codeBlock(lines.slice(1, end)));
      at = end + 1;
    }
  }
  while (at < lines.length) {
    const [block, next] = blockAt(lines, at);
    if (block) found.push(block);
    at = next;
  }
  return found;
}

/** @returns {[any, number]} the block that begins at a line, and the line after it. */
function blockAt(lines, at) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = /^ {0,3}(`{3,}|~{3,})/.exec(line);
  if (fence) return fenced(lines, at, fence[1]);
  const heading = /^(#{1,6}) +(.*)$/.exec(line);
  if (heading) return [headingOf(heading[1].length, heading[2]), at + 1];
  if (isRow(line) && at + 1 < lines.length && isRule(lines[at + 1])) return table(lines, at);
  if (itemOf(line) !== null) return list(lines, at);
  return paragraph(lines, at);
}

function fenced(lines, at, fence) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trimStart().startsWith(fence)) end += 1;
  return [codeBlock(lines.slice(at + 1, end)), end + 1];
}

function codeBlock(lines) {
  return html`<pre class="code" tabindex="0" role="group" aria-label="Code">${lines.join("\n")}</pre>`;
}

/** The page has a first and second level of its own. */
function headingOf(level, text) {
  return html`<${`h${Math.min(6, level + 2)}`}>${inline(text)}<//>`;
}

function isRow(line) {
  return line.trimStart().startsWith("|");
}

function isRule(line) {
  return isRow(line) && /^[\s|:-]+$/.test(line) && line.includes("-");
}

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && isRow(lines[end])) end += 1;
  const head = cells(lines[at]);
  const body = lines.slice(at + 2, end).map(cells);
  const hasHead = head.some((cell) => cell);
  return [
    html`<div class="table-box" tabindex="0" role="group" aria-label="Table">
      <table class="table" aria-label=${plain(head.find((cell) => cell)) || "Table"}>
        ${hasHead ? html`<thead><tr>${head.map((cell) => html`<th scope="col">${inline(cell)}</th>`)}</tr></thead>` : ""}
        <tbody>${body.map((row) => html`<tr>${row.map((cell, column) => html`<td data-column=${plain(head[column])}>${inline(cell)}</td>`)}</tr>`)}</tbody>
      </table>
    </div>`,
    end,
  ];
}

/** @returns {string|undefined} the text of a column's head, which stands before each cell on narrow screens. */
function plain(cell) {
  return (cell || "").replace(/\\(.)/g, "$1").replace(/[`*]/g, "") || undefined;
}

/** Splits a row at its bars; one after a backslash belongs to its cell. */
function cells(line) {
  const found = [""];
  const text = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\" && at + 1 < text.length) {
      found[found.length - 1] += text.slice(at, at + 2);
      at += 1;
    } else if (text[at] === "|") found.push("");
    else found[found.length - 1] += text[at];
  }
  return found.map((cell) => cell.trim());
}

function itemOf(line) {
  const match = /^\s{0,8}(?:[-*+]|\d{1,9}[.)]) +(.*)$/.exec(line);
  return match ? match[1] : null;
}

function list(lines, at) {
  const isNumbered = /^\s*\d/.test(lines[at]);
  const items = [];
  let end = at;
  while (end < lines.length && itemOf(lines[end]) !== null) items.push(itemOf(lines[end++]));
  const shown = items.map((item) => html`<li>${inline(item)}</li>`);
  return [isNumbered ? html`<ol>${shown}</ol>` : html`<ul>${shown}</ul>`, end];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !/^(#{1,6} |\||```|~~~)/.test(lines[end]) && itemOf(lines[end]) === null) end += 1;
  return [html`<p>${inline(lines.slice(at, end).join(" "))}</p>`, end];
}

/** A long line, or one with many marks, is text as it is: to look for pairs in it could take long. */
function inline(text) {
  if (text.length > MAX_INLINE || text.split("`").length > MAX_MARKS) return text;
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    parts.push(text.slice(last, match.index), mark(match));
    last = match.index + match[0].length;
  }
  parts.push(text.slice(last));
  return parts;
}

function mark([, escaped, , code, bold, image, linkText, address]) {
  if (escaped !== undefined) return escaped;
  if (code !== undefined) return html`<code>${code.trim()}</code>`;
  if (bold !== undefined) return html`<b>${bold}</b>`;
  if (image !== undefined) return image;
  return html`<${OutLink} href=${address}>${linkText}<//>`;
}
