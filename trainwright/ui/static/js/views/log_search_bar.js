// The search in a log: a field, the number of hits, and the way from one to the next with Enter and Shift+Enter.
import { html, useEffect, useReducer, useRef, useState } from "../dom.js";
import { LogSearch } from "../log_search.js";
import { Button, Problem } from "../widgets.js";

const TYPING_MS = 200;

/** A search in the log that `ask` reaches; `onHit` is called with the line to show. */
export function useSearch({ ask, total, topLine, onHit }) {
  const [, changed] = useReducer((turn) => turn + 1, 0);
  const search = useRef(null);
  if (!search.current || search.current.ask !== ask) search.current = new LogSearch(ask, changed);
  const now = useRef({});
  now.current = { topLine, onHit };
  const found = search.current;
  found.showNext = async (direction) => {
    const from = found.current ?? now.current.topLine;
    const line = await found.step(direction, direction === "forward" && found.current !== null ? from + 1 : from);
    if (line !== null) now.current.onHit(line);
  };
  found.begin = async (pattern) => {
    const line = await found.start(pattern, now.current.topLine);
    if (line !== null) now.current.onHit(line);
  };
  useEffect(() => {
    if (found.pattern && total > found.counted) found.countOn();
  }, [total, found]);
  return found;
}

export function SearchBar({ search }) {
  const [pattern, setPattern] = useState({ text: "", expression: "", case: "" });
  const timer = useRef(null);
  const change = (part) => {
    const next = { ...pattern, ...part };
    setPattern(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => search.begin(next), "text" in part ? TYPING_MS : 0);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  const press = (event) => {
    if (event.key === "Escape") return change({ text: "" });
    if (event.key !== "Enter") return undefined;
    event.preventDefault();
    clearTimeout(timer.current);
    if (search.pattern?.text !== pattern.text) return search.begin(pattern);
    return search.showNext(event.shiftKey ? "backward" : "forward");
  };
  const toggle = (option) => change({ [option]: pattern[option] ? "" : "1" });
  const none = search.count ? "" : "there are no hits";
  return html`<div class="search-bar" role="search">
      <input
        type="search"
        class="search-field"
        aria-label="Search in the log"
        placeholder="Search"
        maxlength="1000"
        spellcheck=${false}
        value=${pattern.text}
        onInput=${(event) => change({ text: event.target.value })}
        onKeyDown=${press}
      />
      <${Toggle} on=${pattern.case} label="Match case" onClick=${() => toggle("case")}>Aa<//>
      <${Toggle} on=${pattern.expression} label="Regular expression (RE2)" onClick=${() => toggle("expression")}>.*<//>
      <${Button} kind="small" label="Previous hit" why=${none} onClick=${() => search.showNext("backward")}>↑<//>
      <${Button} kind="small" label="Next hit" why=${none} onClick=${() => search.showNext("forward")}>↓<//>
      <span class="search-count" role="status">${hitText(search)}</span>
    </div>
    <${Problem} problem=${search.problem} />`;
}

/** A button that is on or off. */
export function Toggle({ on, onClick, label, children }) {
  const names = { "aria-label": label, title: label };
  return html`<button type="button" class="button small toggle" aria-pressed=${Boolean(on)} ...${names} onClick=${onClick}>
    ${children}
  </button>`;
}

function hitText(search) {
  if (!search.pattern || search.problem) return "";
  const place = search.current === null ? -1 : search.placeOf(search.current);
  const count = `${search.count.toLocaleString("en")}${search.isCounting ? " or more" : ""}`;
  const lines = search.count === 1 && !search.isCounting ? "line" : "lines";
  return place >= 0 ? `${(place + 1).toLocaleString("en")} of ${count} ${lines}` : `${count} ${lines}`;
}
