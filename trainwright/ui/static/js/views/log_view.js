// The log of one container of a job: any of millions of lines at once, live, with search. Only lines in view are in the document.
import { getBlob, getJson, openStream, path, query } from "../api.js";
import { html, useCallback, useEffect, useMemo, useReducer, useRef, useState } from "../dom.js";
import { bytes, counted } from "../format.js";
import { useLineWindow } from "../line_window.js";
import { LogLines } from "../log_lines.js";
import { setValues, useRoute } from "../route.js";
import { Button, Notice, Problem, useLoaded } from "../widgets.js";
import { LogChoice, chosenLog } from "./log_choice.js";
import { SearchBar, Toggle, useSearch } from "./log_search_bar.js";

const LINE_HEIGHT = 18;
const REFRESH_MS = 5000;
const MAX_ABSENT = 50;
const NO_LOG = { total: 0, bytes: 0, partial: null, state: "reading", message: "", isConnected: false, problem: null };
const WORDS = { live: "live", reading: "reading …", waiting: "waiting", ended: "ended", truncated: "incomplete" };
const UNREADABLE = ["gone", "forbidden", "lost"];

/** `job` is the live state of the job, if there is one: its pods tell when the list of containers has to be read again. */
export function LogView({ namespace, name, job }) {
  const { values } = useRoute();
  const pods = job ? job.pods.map((pod) => `${pod.uid} ${pod.phase} ${pod.restarts}`).join() : "";
  const load = (signal) => getJson(`trainjobs/${path(namespace, name)}/containers`, { signal });
  const { value, problem, reload } = useLoaded(load, [namespace, name, pods]);
  const containers = useKept(value?.containers);
  const chosen = useMemo(() => chosenLog(containers || [], values), [containers, values.toString()]);
  const isEnded = chosen?.entry.state === "terminated";
  useEffect(() => {
    if (isEnded) return undefined;
    const timer = setInterval(reload, REFRESH_MS);
    return () => clearInterval(timer);
  }, [isEnded]);
  if (!containers) return problem ? html`<${Problem} problem=${problem} />` : html`<p class="loading">Reading the pods …</p>`;
  return html`<section class="log-view" aria-label="Logs">
    <${Problem} problem=${problem} />
    <${LogChoice} containers=${containers} chosen=${chosen} onChoose=${setValues} />
    ${chosen
      ? html`<${Log} key=${`${chosen.entry.uid}/${chosen.entry.container}/${chosen.run}`} namespace=${namespace} log=${chosen} />`
      : html`<${Notice}>There are no pods, so there are no logs.<//>`}
  </section>`;
}

/** The list, and after it what earlier lists had: the log of a pod that is deleted stays in view. Null before the first list. */
function useKept(list) {
  const kept = useRef(null);
  if (list && list !== kept.current?.list) {
    const idOf = (each) => `${each.uid}/${each.container}`;
    const present = new Set(list.map(idOf));
    const absent = (kept.current?.all || []).filter((each) => !present.has(idOf(each)));
    kept.current = { list, all: [...list, ...absent.slice(0, MAX_ABSENT).map((each) => ({ ...each, phase: "deleted" }))] };
  }
  return kept.current ? kept.current.all : null;
}

function Log({ namespace, log }) {
  const { entry, run } = log;
  const base = `logs/${path(namespace, entry.pod, entry.container)}`;
  const file = `${entry.pod}.${entry.container}.${run}.log`;
  const identity = { uid: entry.uid, restart: run };
  const [state, retry] = useLogState(base, identity);
  const lines = useLines(base, identity);
  const [follow, setFollow] = useState(true);
  const [options, setOptions] = useState({ wrap: false, times: false });
  const count = state.total + (state.partial !== null ? 1 : 0);
  const view = useLineWindow(count, LINE_HEIGHT, { follow, onFollow: setFollow });
  const topLine = Math.floor(view.top / LINE_HEIGHT);
  const search = useSearch({
    ask: useCallback((parameters) => getJson(`${base}/search${query({ ...identity, ...parameters })}`), [base, entry.uid, run]),
    total: state.total,
    topLine,
    onHit: (line) => {
      setFollow(false);
      view.show(line, { place: options.wrap ? "start" : "near" });
    },
  });
  const shown = options.wrap ? wrappedLines(view, count) : view;
  useEffect(() => lines.want(shown.first, shown.last, state.total), [shown.first, shown.last, state.total]);
  return html`<${SearchBar} search=${search} />
    <div class="log-bar">
      <${Toggle} on=${follow} onClick=${() => setFollow(!follow)}>Follow<//>
      <${Toggle} on=${options.wrap} onClick=${() => setOptions({ ...options, wrap: !options.wrap })}>Wrap<//>
      <${Toggle} on=${options.times} onClick=${() => setOptions({ ...options, times: !options.times })}>Times<//>
      <${Button} kind="small" onClick=${() => { setFollow(false); view.show(0, { place: "start" }); }}>To the start<//>
      <${Button} kind="small" onClick=${() => setFollow(true)}>To the end<//>
      <${Download} href=${`${base}/text${query({ ...identity, times: options.times ? 1 : "" })}`} name=${file} />
      <${LogStatus} state=${state} />
    </div>
    <${LogMessage} state=${state} onRetry=${retry} />
    <${Problem} problem=${lines.problem} />
    <${LineBox} view=${view} shown=${shown} lines=${lines} state=${state} count=${count} options=${options} search=${search} />`;
}

function LineBox({ view, shown, lines, state, count, options, search }) {
  const digits = String(Math.max(1, count)).length;
  const place = shown.isWhole || shown.isAtBottom ? {} : { transform: `translateY(${shown.offset}px)` };
  return html`<div
    class=${`log-box ${options.wrap ? "is-wrapped" : ""}`}
    ref=${view.box}
    tabindex="0"
    role="region"
    aria-label="Lines of the log"
  >
    <div class="log-canvas" style=${{ height: shown.isWhole ? "auto" : `${Math.max(view.canvas, 1)}px` }}>
      <div class=${`log-lines ${shown.isAtBottom ? "is-at-bottom" : ""} ${shown.isWhole ? "is-whole" : ""}`} style=${place}>
        ${range(shown.first, shown.last).map((number) => {
          const isPartial = number >= state.total;
          const line = isPartial ? { text: state.partial, time: "" } : lines.line(number);
          const about = { number, line, digits, times: options.times, isPartial, search };
          return html`<${Line} key=${number} ...${about} />`;
        })}
      </div>
    </div>
  </div>`;
}

function Line({ number, line, digits, times, isPartial, search }) {
  const isHit = !isPartial && search.placeOf(number) >= 0;
  const isCurrent = search.current === number;
  const text = line ? html`<${Marked} text=${line.text} search=${search} isHit=${isHit || isCurrent} />` : "…";
  return html`<div class=${`log-line ${isHit ? "is-hit" : ""} ${isCurrent ? "is-current" : ""} ${isPartial ? "is-partial" : ""}`}>
    <span class="log-number" style=${{ minWidth: `${digits}ch` }}>${number + 1}</span>
    ${times ? html`<time class="log-time" title=${line?.time}>${line ? timeOfDay(line.time) : ""}</time>` : ""}
    <span class="log-text">${text}</span>
  </div>`;
}

/** A text with the places that were searched for. Only those of plain texts: the server's expressions are not JavaScript's. */
function Marked({ text, search, isHit }) {
  const pattern = search.pattern;
  if (!isHit || !pattern || pattern.expression) return text;
  const [within, wanted] = pattern.case ? [text, pattern.text] : [text.toLowerCase(), pattern.text.toLowerCase()];
  if (within.length !== text.length) return text;
  const parts = [];
  let position = 0;
  for (let found = within.indexOf(wanted); found >= 0; found = within.indexOf(wanted, position)) {
    parts.push(text.slice(position, found), html`<mark key=${found}>${text.slice(found, found + wanted.length)}</mark>`);
    position = found + wanted.length;
  }
  return [...parts, text.slice(position)];
}

function LogStatus({ state }) {
  const word = state.isConnected ? WORDS[state.state] || "not available" : "connecting …";
  return html`<span class="log-status">
    ${counted(state.total, "line")}${state.bytes ? `, ${bytes(state.bytes)}` : ""} · <b role="status">${word}</b>
  </span>`;
}

function LogMessage({ state, onRetry }) {
  if (state.problem) return html`<${Problem} problem=${state.problem} />`;
  const isEmpty = state.state === "ended" && !state.total;
  if (!state.message) return isEmpty ? html`<${Notice}>The container has printed nothing.<//>` : null;
  const isUnreadable = UNREADABLE.includes(state.state);
  return html`<${Notice} kind=${isUnreadable || state.state === "truncated" ? "warning" : "note"}>
    ${capital(state.message)}. ${isUnreadable ? html`<${Button} kind="small" onClick=${onRetry}>Try again<//>` : ""}
  <//>`;
}

function Download({ href, name }) {
  const [state, setState] = useState({ busy: false, problem: null });
  const download = async () => {
    setState({ busy: true, problem: null });
    try {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await getBlob(href));
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
      setState({ busy: false, problem: null });
    } catch (problem) {
      setState({ busy: false, problem });
    }
  };
  return html`<${Button} kind="small" onClick=${download} why=${state.busy ? "being downloaded" : ""}>Download<//>
    <${Problem} problem=${state.problem} />`;
}

/** Follows how a log grows. @returns {[state, retry]} */
function useLogState(base, identity) {
  const [state, setState] = useState(NO_LOG);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    const follow = (message) => {
      if (message.type === "log") setState((before) => ({ ...before, ...message, isConnected: true, problem: null }));
      else if (message.type === "problem") setState((before) => ({ ...before, problem: message.problem }));
    };
    const tell = ({ live, problem }) =>
      setState((before) => ({ ...before, isConnected: live, problem: problem || before.problem }));
    openStream(`${base}/stream${query(identity)}`, follow, { signal: control.signal, onState: tell });
    return () => control.abort();
  }, [base, identity.uid, identity.restart, turn]);
  const retry = async () => {
    await getJson(`${base}/lines${query({ ...identity, count: 1, again: 1 })}`).catch(() => {});
    setTurn((before) => before + 1);
  };
  return [state, retry];
}

function useLines(base, identity) {
  const [, changed] = useReducer((turn) => turn + 1, 0);
  const load = (from, count) => getJson(`${base}/lines${query({ ...identity, from, count })}`);
  const lines = useMemo(() => new LogLines(load, changed), [base, identity.uid, identity.restart]);
  useEffect(() => () => lines.close(), [lines]);
  return lines;
}

/** The lines to render when they are wrapped, and have any height: from the first one in view on, or up to the last one. */
function wrappedLines(view, count) {
  const visible = Math.ceil(view.viewHeight / LINE_HEIGHT) + 1;
  if (count <= 2 * visible) return { first: 0, last: count, offset: 0, isWhole: true };
  if (view.atEnd) return { first: Math.max(0, count - visible), last: count, offset: 0, isAtBottom: true };
  const first = Math.max(0, Math.floor(view.top / LINE_HEIGHT));
  const offset = view.offset + (first - view.first) * LINE_HEIGHT;
  return { first, last: Math.min(count, first + visible), offset };
}

function range(first, last) {
  return Array.from({ length: Math.max(0, last - first) }, (_, number) => first + number);
}

function timeOfDay(time) {
  const moment = new Date(time);
  if (!time || Number.isNaN(moment.getTime())) return "";
  const two = (number, length = 2) => String(number).padStart(length, "0");
  return `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}.${two(moment.getMilliseconds(), 3)}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
