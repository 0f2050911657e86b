// Small components that all views share. Texts are always text nodes: nothing here, or above, interprets markup.
import { untilAnswered } from "./api.js";
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./dom.js";
import { duration, localTime, secondsBetween } from "./format.js";

const TICK_MS = 5000;
const MOST_UNBROKEN = 24;

/** A button; with `why` it is disabled, and says why, to screen readers too. */
export function Button({ onClick, why = "", kind = "", label, children, ...more }) {
  return html`<button
    type="button"
    class=${`button ${kind}`}
    aria-disabled=${why ? "true" : undefined}
    title=${why || label || undefined}
    aria-label=${label && why ? `${label}: ${why}` : label}
    onClick=${(event) => (why ? event.preventDefault() : onClick?.(event))}
    ...${more}
  >
    ${children}${why && !label ? html`<span class="for-readers">: ${why}</span>` : ""}
  </button>`;
}

/** The phase of a job, by colour and by word. */
export function Phase({ phase }) {
  return html`<span class=${`phase phase-${phase.toLowerCase()}`}>${phase}</span>`;
}

/** A bar for a percentage; nothing if none is known. */
export function Progress({ percent, name }) {
  if (percent === null || percent === undefined) return null;
  return html`<span class="progress" role="progressbar" aria-label=${name} aria-valuenow=${percent} aria-valuemin="0" aria-valuemax="100">
    <span class="progress-bar" style=${{ width: `${Math.min(100, Math.max(0, percent))}%` }}></span>
    <span class="progress-text">${percent} %</span>
  </span>`;
}

/** How long ago something was; the exact time as a tooltip. */
export function Age({ since, until }) {
  useTick(until ? 0 : TICK_MS);
  if (!since) return null;
  return html`<time datetime=${since} title=${`${localTime(since)} (${since})`}>${duration(secondsBetween(since, until))}</time>`;
}

/** A time where the reader is; UTC as a tooltip. */
export function Time({ at }) {
  return at ? html`<time datetime=${at} title=${at}>${localTime(at)}</time>` : null;
}

/** Renders again every so many milliseconds; 0 never. */
export function useTick(milliseconds) {
  const [, setTick] = useState(0);
  useEffect(() => {
    if (!milliseconds) return undefined;
    const timer = setInterval(() => setTick((tick) => tick + 1), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}

/** A message: `kind` is `error`, `warning` or `note`. */
export function Notice({ kind = "note", children }) {
  return html`<div class=${`notice notice-${kind}`} role=${kind === "error" ? "alert" : "status"}>${children}</div>`;
}

/** The text of a failed request. */
export function Problem({ problem }) {
  if (!problem) return null;
  return html`<${Notice} kind="error">${problem.message}${problem.reason ? ` (${problem.reason})` : ""}<//>`;
}

/** Tabs of a view: `tabs` are `[id, title]`, each a link of its own. */
export function Tabs({ tabs, current, hrefOf, name }) {
  return html`<nav class="tabs" aria-label=${name}>
    ${tabs.map(
      ([id, title]) =>
        html`<a key=${id} href=${hrefOf(id)} class="tab" aria-current=${id === current ? "page" : undefined}>${title}</a>`,
    )}
  </nav>`;
}

/** Pairs of names and values. */
export function Facts({ facts }) {
  return html`<dl class="facts">
    ${facts
      .filter(([, value]) => value !== "" && value !== null && value !== undefined)
      .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** A table that becomes a list of cards on narrow screens. `rows` are arrays of cells; `keys` identify them. */
export function Table({ name, columns, rows, keys, empty }) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="table-box" tabindex="0" role="region" aria-label=${name}>
    <table class="table" aria-label=${name}>
      <thead><tr>${columns.map((column) => html`<th key=${column} class=${isShort(column) ? undefined : "long"} scope="col">${column}</th>`)}</tr></thead>
      <tbody>
        ${rows.map(
          (row, number) =>
            html`<tr key=${keys ? keys[number] : number}>
              ${row.map((cell, column) => html`<td key=${columns[column]} class=${isShort(cell) ? "short" : undefined} data-column=${columns[column]}>${cell}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** Whether the words of a cell are not broken. */
function isShort(cell) {
  return typeof cell === "string" && cell.length <= MOST_UNBROKEN;
}

/** A modal dialog. The browser traps the focus in it, closes it with Escape, and gives the focus back. */
export function Dialog({ title, onClose, children }) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    const element = dialog.current;
    element.showModal();
    return () => element.open && element.close();
  }, []);
  return html`<dialog ref=${dialog} class="dialog" aria-labelledby="dialog-title" onClose=${onClose}>
    <h2 id="dialog-title">${title}</h2>
    ${children}
  </dialog>`;
}

/** Asks before something is done: `action` is a promise, whose error is shown in the dialog. `onDone` gets its result. */
export function Confirmation({ title, consequence, verb, action, onDone, onClose, kind = "danger", children }) {
  const [state, setState] = useState({ busy: false, problem: null });
  const confirm = useCallback(async () => {
    setState({ busy: true, problem: null });
    try {
      const result = await action();
      onDone(result);
    } catch (problem) {
      setState({ busy: false, problem });
    }
  }, [action, onDone]);
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>${consequence}</p>
    ${children}
    <${Problem} problem=${state.problem} />
    <div class="dialog-buttons">
      <${Button} onClick=${onClose}>Cancel<//>
      <${Button} kind=${kind} onClick=${confirm} why=${state.busy ? "being done" : ""}>${verb}<//>
    </div>
  <//>`;
}

/** A text with a button that copies it. */
export function Copyable({ text, name }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return html`<span class="copyable"
    ><code>${text}</code> <${Button} kind="small" label=${`Copy ${name}`} onClick=${copy}>${copied ? "Copied" : "Copy"}<//></span
  >`;
}

/** A link out of the page, or the text alone if its address is not http. */
export function OutLink({ href, children }) {
  if (!/^https?:\/\//i.test(href || "")) return html`<span>${children}</span>`;
  return html`<a href=${href} target="_blank" rel="noopener noreferrer">${children}<span class="for-readers"> (new tab)</span></a>`;
}

/**
 * Loads what `load(signal)` returns, again when `keys` change, and until the server and its cluster answer.
 * @returns {{value, problem, loading, reload}}
 */
export function useLoaded(load, keys) {
  const [state, setState] = useState({ value: null, problem: null, loading: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    const { signal } = control;
    const show = (found) => signal.aborted || setState({ value: null, problem: null, loading: false, ...found });
    const fail = (problem) => show({ problem });
    setState((before) => ({ ...before, loading: true }));
    untilAnswered(load, signal, fail).then((value) => show({ value }), fail);
    return () => control.abort();
  }, [...keys, turn]);
  return { ...state, reload: () => setTurn((before) => before + 1) };
}
