// What the views of runs, models and exports share: metrics, digests, figures of evaluations, and links between the three.
import { ordered } from "../curves.js";
import { html, useEffect, useState } from "../dom.js";
import { figure, localTime } from "../format.js";
import { ownValue } from "../own_value.js";
import { to } from "../route.js";
import { Button, Copyable, Notice, OutLink, Problem, useLoaded } from "../widgets.js";

const FEW = 4;
const OF_STEPS = /(learning_rate|lr|grad_norm)$/;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** @returns {string} the address of the page of an export. */
export function exportLink(uri) {
  return `${to("models", "export")}?${new URLSearchParams({ uri })}`;
}

/** @returns {string} the address of a folder of exports. */
export function folderLink(uri) {
  return `${to("models")}?${new URLSearchParams({ uri })}`;
}

/** @returns {string} the address of the comparison of two exports. */
export function diffLink(one, other) {
  return `${to("models", "diff")}?${new URLSearchParams({ one, other })}`;
}

/** @returns {string} the address of a run. */
export function runLink(workspace, run) {
  return to("runs", workspace, run);
}

/** @returns {string} what a run is called: its pipeline or DAG, and its id, or its start if the id is a UUID; else the id alone. */
export function runTitle(row) {
  const { name } = row.creator;
  const id = row.run || row.name;
  if (!name || id.startsWith(`${name}-`)) return id;
  if (UUID.test(id) && row.started) return `${name} · ${localTime(row.started)}`;
  return `${name} · ${id.startsWith(`${name}/`) ? id.slice(name.length + 1) : id}`;
}

/** A loss before and after training, and what it is of; of an export that was evaluated. */
export function Loss({ loss, of }) {
  const text = (value) => (value === null ? "not finite" : figure(value));
  return html`<span class="at-least"><b>${text(loss.after)}</b> from ${text(loss.before)}<span class="second wrapped">${of}</span></span>`;
}

/** The first digits of a digest; all of it as a tooltip, and for screen readers on request of it. */
export function Digest({ digest }) {
  if (!digest) return null;
  return html`<code class="digest" title=${digest}>${digest.replace(/^sha256:/, "").slice(0, 12)}</code>`;
}

/** A few metrics as `name value`; all of them behind a button. */
export function Metrics({ metrics, few = FEW }) {
  const [all, setAll] = useState(false);
  const [first, others] = ordered(Object.keys(metrics || {}));
  const entries = [...first.filter((name) => !OF_STEPS.test(name)), ...others, ...first.filter((name) => OF_STEPS.test(name))]
    .map((name) => [name, ownValue(metrics, name)])
    .filter(([, value]) => value !== null);
  if (!entries.length) return null;
  const shown = all ? entries : entries.slice(0, few);
  return html`<span class="metrics">
    ${shown.map(([name, value]) => html`<span key=${name} class="metric">${name} <b>${figure(value)}</b></span>`)}
    ${entries.length > few
      ? html`<${Button} kind="small" onClick=${() => setAll(!all)} aria-expanded=${all}>${all ? "fewer" : `${entries.length - few} more`}<//>`
      : ""}
  </span>`;
}

/** Values of JSON as rows of names and texts. */
export function Values({ values, empty = "nothing is recorded" }) {
  const entries = Object.entries(values || {});
  if (!entries.length) return html`<p class="empty">${empty}</p>`;
  return html`<dl class="facts">
    ${entries.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${valueText(value)}</dd></div>`)}
  </dl>`;
}

/** @returns {string} a value of JSON as text. */
export function valueText(value) {
  if (value === null || value === undefined) return "—";
  if (typeof value === "number") return figure(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Where a prepared dataset or model comes from. */
export function Prepared({ kind, prepared, digest }) {
  const source = prepared?.source || "";
  return html`<div>
    <h3>${kind === "dataset" ? "Dataset" : "Base model"}</h3>
    ${source || digest ? "" : html`<p class="empty">not recorded</p>`}
    <dl class="facts">
      ${source ? html`<div><dt>source</dt><dd>${source}</dd></div>` : ""}
      ${prepared?.revision ? html`<div><dt>revision</dt><dd><code>${prepared.revision}</code></dd></div>` : ""}
      ${digest ? html`<div><dt>digest</dt><dd><${Digest} digest=${digest} /></dd></div>` : ""}
      ${Object.entries(prepared?.details || {}).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${valueText(value)}</dd></div>`)}
    </dl>
  </div>`;
}

/** Links to trackers: addresses to open, or commands to copy. */
export function ToolLinks({ links }) {
  if (!links?.length) return null;
  return html`<ul class="plain-list">
    ${links.map(
      (link) =>
        html`<li key=${`${link.tool} ${link.title}`}>
          ${link.tool}:${" "}
          ${link.url ? html`<${OutLink} href=${link.url}>${link.title}<//>` : html`<${Copyable} text=${link.command} name=${`the command for ${link.tool}`} />`}
        </li>`,
    )}
  </ul>`;
}

/** What `useLoaded` returned: its problem with a way to try again, or that it is being read. True content is left to the caller. */
export function Loading({ loaded, name }) {
  if (loaded.problem) return html`<div><${Problem} problem=${loaded.problem} /><${Button} onClick=${loaded.reload}>Try again<//></div>`;
  return loaded.value ? null : html`<p class="loading" role="status">Reading ${name} …</p>`;
}

/**
 * Loads a list page by page: `read(before, signal)` returns the page after the page `before`, which is null for the first.
 * @returns {{loaded, pages, more}} `loaded` is that of the first page, `more` is for `ShowMore`.
 */
export function usePages(read, keys) {
  const loaded = useLoaded((signal) => read(null, signal), keys);
  const [more, setMore] = useState({ pages: [], problem: null, busy: false });
  useEffect(() => setMore({ pages: [], problem: null, busy: false }), [loaded.value]);
  const pages = loaded.value ? [loaded.value, ...more.pages] : [];
  const readMore = async () => {
    setMore({ ...more, busy: true, problem: null });
    try {
      const page = await read(pages.at(-1));
      setMore({ pages: [...more.pages, page], problem: null, busy: false });
    } catch (problem) {
      setMore({ ...more, problem, busy: false });
    }
  };
  return { loaded, pages, more: { ...more, readMore } };
}

/** A button that reads the next page, if there `is` one. */
export function ShowMore({ more, is, children }) {
  return html`<${Problem} problem=${more.problem} />${is ? html`<${Button} onClick=${more.readMore} why=${more.busy ? "being read" : ""}>${children}<//>` : ""}`;
}

/** Problems of parts that did not keep the rest from being shown. */
export function Problems({ problems }) {
  const given = (problems || []).filter(Boolean);
  if (!given.length) return null;
  return html`<div>${given.map((text) => html`<${Notice} key=${text} kind="warning">${text}<//>`)}</div>`;
}
