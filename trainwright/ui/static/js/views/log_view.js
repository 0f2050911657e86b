// The log of one container of a job: its last megabytes, live, with search in them. Only lines in view are in the document.
import { getBlob, getJson, openStream, path, query, saveBlob, untilAnswered } from "../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../dom.js";
import { bytes, counted } from "../format.js";
import { useLineWindow } from "../line_window.js";
import { LogLines, LogSearch, MAX_BYTES } from "../log_lines.js";
import { setValues, useRoute } from "../route.js";
import { Button, Notice, Problem, useLoaded } from "../widgets.js";
import { LogChoice, chosenLog } from "./log_choice.js";

const LINE_HEIGHT = 18;
const REFRESH_MS = 5000;
const NO_LOG = { size: 5000000, partial: "", message: "", ended: false, live: false, problem: null };

/** `job` is the live state of the job, if there is one: its pods tell when the list of containers has to be read again. */
export function LogView({ namespace, name, job }) {
  const { values } = useRoute();
  const pods = job ? job.pods.map((pod) => `${pod.uid} ${pod.phase} ${pod.restarts}`).join() : "";
  const load = (signal) => getJson(`trainjobs/${path(namespace, name)}/containers`, { signal });
  const { value, problem, reload } = useLoaded(load, [namespace, name, pods]);
  const containers = useKept(value?.containers);
  const chosen = chosenLog(containers || [], values);
  const isEnded = chosen?.entry.state === "terminated";
  useEffect(() => {
    const timer = isEnded ? 0 : setInterval(reload, REFRESH_MS);
    return () => clearInterval(timer);
  }, [isEnded]);
  if (!containers) return problem ? html`<${Problem} problem=${problem} />` : html`<p class="loading">Reading the pods …</p>`;
  return html`<section class="log-view" aria-label="Logs">
    <${Problem} problem=${problem} />
    ${chosen
      ? html`<${LogChoice} containers=${containers} ...${chosen} onChoose=${setValues} />
          <${Log} key=${`${chosen.entry.uid}/${chosen.entry.container}/${chosen.run}`} namespace=${namespace} ...${chosen} />`
      : html`<${Notice}>There are no pods, so there are no logs.<//>`}
  </section>`;
}

/** The list, and after it what earlier lists had: the log of a pod that is deleted stays in view. Undefined before the first list. */
function useKept(list) {
  const kept = useRef({});
  if (list && list !== kept.current.list) {
    const isAbsent = (each) => !list.some((other) => other.uid === each.uid && other.container === each.container);
    const absent = (kept.current.all || []).filter(isAbsent).slice(0, 50);
    kept.current = { list, all: [...list, ...absent.map((each) => ({ ...each, phase: "deleted" }))] };
  }
  return kept.current.all;
}

function Log({ namespace, entry, run }) {
  const base = `logs/${path(namespace, entry.pod, entry.container)}`;
  const identity = { uid: entry.uid, restart: run };
  const { log, state, more, retry } = useLog(base, identity);
  const [follow, setFollow] = useState(true);
  const [options, setOptions] = useState({ wrap: false, times: false });
  const count = log.lines.length + (state.partial ? 1 : 0);
  const view = useLineWindow(count, LINE_HEIGHT, { follow, onFollow: setFollow });
  const topLine = Math.floor(view.top / LINE_HEIGHT);
  const showLine = (line, place) => {
    setFollow(false);
    view.show(line, { place: options.wrap ? "start" : place });
  };
  const search = useSearch(log, topLine, showLine);
  const seen = useRef(0);
  useEffect(() => {
    if (!follow) view.show(topLine + log.shift - seen.current, { place: "start" });
    seen.current = log.shift;
  }, [log.shift]);
  const toggle = (name) => html`<${Toggle} on=${options[name]} onClick=${() => setOptions({ ...options, [name]: !options[name] })}>
    ${name === "wrap" ? "Wrap" : "Times"}
  <//>`;
  const last = log.isCut ? `last ${bytes(log.bytes)}` : "";
  const loaded = `${counted(log.lines.length, "line")}${count ? `, ${last || bytes(log.bytes)}` : ""}`;
  const word = state.live ? (entry.state === "waiting" ? "waiting" : "live") : state.problem ? "not connected" : "connecting …";
  const save = async () => saveBlob(await getBlob(`${base}/text${query({ ...identity, times: options.times ? 1 : "" })}`), `${entry.pod}.${entry.container}.${run}.log`);
  return html`<${SearchBar} search=${search} where=${last && ` in the ${last}`} />
    <div class="log-bar">
      <${Toggle} on=${follow} onClick=${() => setFollow(!follow)}>Follow<//>
      ${toggle("wrap")} ${toggle("times")}
      ${last && more ? html`<${Asking} ask=${() => { setFollow(false); return more(); }}>Load more<//>` : ""}
      <${Asking} ask=${save}>Download<//>
      <span class="log-status">${loaded} · <b role="status">${state.ended ? "ended" : word}</b></span>
    </div>
    <${Problem} problem=${state.problem} />
    ${state.problem && !state.live ? html`<${Button} kind="small" onClick=${retry}>Try again<//>` : ""}
    ${state.message ? html`<${Notice}>${state.message}<//>` : ""}
    ${state.ended && !count && !state.message ? html`<${Notice}>The container has printed nothing.<//>` : ""}
    <${LineBox} ...${{ view, log, count, search, options, partial: state.partial }} />`;
}

/** Reads the end of a log, then what follows. @returns {{log, state, more, retry}} `more` is null if no more can be loaded. */
function useLog(base, identity) {
  const log = useMemo(() => new LogLines(), []);
  const [state, setState] = useState(NO_LOG);
  const [turn, setTurn] = useState(0);
  const change = (part) => setState((before) => ({ ...before, ...part }));
  const load = async (size, signal) => {
    const answer = await untilAnswered(() => getJson(`${base}/lines${query({ ...identity, bytes: size })}`, { signal }), signal);
    log.prepend(answer);
    change({ size, message: answer.message, problem: null });
  };
  useEffect(() => {
    const control = new AbortController();
    const take = ({ type, lines, partial, ended, problem }) => {
      if (type === "problem") return change({ problem });
      log.append(lines);
      if (ended) control.abort();
      return change({ partial, ended, ...(lines.length ? { message: "" } : {}) });
    };
    const streamPath = () => `${base}/stream${query({ ...identity, after: log.resume() })}`;
    load(state.size, control.signal)
      .then(() => openStream(streamPath, take, { signal: control.signal, onState: change }))
      .catch((problem) => control.signal.aborted || change({ problem }));
    return () => control.abort();
  }, [turn]);
  const size = Math.max(state.size, log.bytes);
  const more = () => load(Math.min(2 * size, MAX_BYTES), new AbortController().signal);
  return { log, state, more: size < MAX_BYTES ? more : null, retry: () => setTurn(turn + 1) };
}

/** A search in the lines that are loaded; `showLine` scrolls to a hit. */
function useSearch(log, topLine, showLine) {
  const [pattern, setPattern] = useState({ text: "", expression: false, case: false });
  const [current, setCurrent] = useState(null);
  const found = useMemo(() => new LogSearch(pattern), [pattern, log.shift]);
  found.countOn(log.lines);
  const line = current === null ? null : current + log.shift;
  const go = (hit) => {
    setCurrent(hit === undefined ? null : hit - log.shift);
    if (hit !== undefined) showLine(hit, "near");
  };
  useEffect(() => go(found.next(topLine)), [pattern]);
  const step = (isBackward) => go(found.next(line === null ? topLine : line + (isBackward ? 0 : 1), isBackward));
  return { found, line, pattern, change: (part) => setPattern({ ...pattern, ...part }), step };
}

function SearchBar({ search, where }) {
  const { found, pattern, change, step } = search;
  const press = (event) => {
    if (event.key === "Escape") change({ text: "" });
    if (event.key === "Enter") step(event.shiftKey);
  };
  const none = found.hits.length ? "" : "there are no hits";
  const number = found.places.has(search.line) ? `${found.places.get(search.line).toLocaleString("en")} of ` : "";
  return html`<div class="search-bar" role="search">
      <input
        ...${{ type: "search", class: "search-field", maxlength: "1000", spellcheck: false, "aria-label": "Search in the log" }}
        placeholder=${`Search${where}`}
        value=${pattern.text}
        onInput=${(event) => change({ text: event.target.value })}
        onKeyDown=${press}
      />
      <${Toggle} on=${pattern.case} label="Match case" onClick=${() => change({ case: !pattern.case })}>Aa<//>
      <${Toggle} on=${pattern.expression} label="Regular expression" onClick=${() => change({ expression: !pattern.expression })}>.*<//>
      <${Button} kind="small" label="Previous hit" why=${none} onClick=${() => step(true)}>↑<//>
      <${Button} kind="small" label="Next hit" why=${none} onClick=${() => step(false)}>↓<//>
      <span class="search-count" role="status">${found.pattern ? `${number}${counted(found.hits.length, "line")}${where}` : null}</span>
    </div>
    <${Problem} problem=${found.problem} />`;
}

/** A button that is on or off. */
function Toggle({ on, onClick, label, children }) {
  const more = { "aria-label": label, title: label, "aria-pressed": Boolean(on), onClick };
  return html`<button type="button" class="button small toggle" ...${more}>${children}</button>`;
}

/** A button that is disabled while what it asks for is on its way. */
function Asking({ ask, children }) {
  const [state, setState] = useState({ why: "", problem: null });
  const press = async () => {
    setState({ why: "on its way", problem: null });
    await ask().then(() => setState({ why: "", problem: null }), (problem) => setState({ why: "", problem }));
  };
  return html`<${Button} kind="small" onClick=${press} why=${state.why}>${children}<//> <${Problem} problem=${state.problem} />`;
}

function LineBox({ view, log, count, search, options, partial }) {
  const shown = options.wrap ? wrappedLines(view, count) : view;
  const place = shown.isWhole || shown.isAtBottom ? {} : { transform: `translateY(${shown.offset}px)` };
  const width = { minWidth: `${String(Math.max(1, count)).length}ch` };
  const numbers = Array.from({ length: Math.max(0, shown.last - shown.first) }, (_, index) => shown.first + index);
  return html`<div class=${`log-box ${options.wrap ? "is-wrapped" : ""}`} ref=${view.box} tabindex="0" role="region" aria-label="Lines of the log">
    <div class="log-canvas" style=${{ height: shown.isWhole ? "auto" : `${Math.max(view.canvas, 1)}px` }}>
      <div class=${`log-lines ${shown.isAtBottom ? "is-at-bottom" : ""} ${shown.isWhole ? "is-whole" : ""}`} style=${place}>
        ${numbers.map((number) => {
          const isHit = search.found.places.has(number);
          const [time, text, state] = log.lines[number] ? [...log.lines[number], ""] : ["", partial, "is-partial"];
          return html`<div key=${number - log.shift} class=${`log-line ${state} ${isHit ? "is-hit" : ""} ${search.line === number ? "is-current" : ""}`}>
            ${log.isCut ? "" : html`<span class="log-number" style=${width}>${number + 1}</span>`}
            ${options.times ? html`<time class="log-time" title=${time}>${timeOfDay(time)}</time>` : ""}
            <span class="log-text">${isHit ? marked(text, search.found.pattern) : text}</span>
          </div>`;
        })}
      </div>
    </div>
  </div>`;
}

/** A text, with the places that a pattern matches. */
function marked(text, pattern) {
  const ends = [...text.matchAll(pattern)].map((found) => [found.index, found.index + found[0].length]);
  const parts = ends.map(([start, end], at) => [text.slice(at ? ends[at - 1][1] : 0, start), html`<mark>${text.slice(start, end)}</mark>`]);
  return [...parts.flat(), text.slice(ends.at(-1)[1])];
}

/** The lines to render when they are wrapped, and have any height: from the first one in view on, or up to the last one. */
function wrappedLines(view, count) {
  const visible = Math.ceil(view.viewHeight / LINE_HEIGHT) + 1;
  if (count <= 2 * visible) return { first: 0, last: count, offset: 0, isWhole: true };
  if (view.atEnd) return { first: Math.max(0, count - visible), last: count, offset: 0, isAtBottom: true };
  const first = Math.max(0, Math.floor(view.top / LINE_HEIGHT));
  return { first, last: Math.min(count, first + visible), offset: view.offset + (first - view.first) * LINE_HEIGHT };
}

function timeOfDay(time) {
  const moment = new Date(time);
  return Number.isNaN(moment.getTime()) ? "" : moment.toLocaleTimeString("en-GB", { fractionalSecondDigits: 3 });
}
