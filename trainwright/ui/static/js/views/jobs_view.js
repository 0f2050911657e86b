// The list of TrainJobs: live, with filter, search and sort, all of which the address carries.
import { html, useEffect, useMemo, useRef, useState } from "../dom.js";
import { counted, duration } from "../format.js";
import { PHASES, filtered, phaseCounts, sorted, useJobRows } from "../job_rows.js";
import { setValues, to } from "../route.js";
import { Age, Notice, Phase, Problem, Progress } from "../widgets.js";
import { useWindow } from "../window_list.js";
import { CreatorLink } from "./creator_link.js";

const COLUMNS = [
  ["phase", "Phase"],
  ["name", "Name"],
  ["progress", "Progress"],
  ["runtime", "Runtime"],
  ["nodes", "Nodes"],
  ["creator", "Made by"],
  ["age", "Age"],
];
const WIDE_ROW = 52;
const NARROW_ROW = 118;

/** `cluster` are the facts about the cluster, `values` those of the address. */
export function JobsView({ cluster, values }) {
  const namespace = values.get("ns") ?? (cluster.namespaces ? "" : cluster.namespace);
  const search = values.get("q") || "";
  const phases = useMemo(() => new Set((values.get("phase") || "").split(",").filter(Boolean)), [values.get("phase")]);
  const sort = values.get("sort") || "age";
  const descending = values.get("down") === "1";
  const { rows, live, problem } = useJobRows(namespace);
  const counts = useMemo(() => phaseCounts(rows || []), [rows]);
  const shown = useMemo(() => sorted(filtered(rows || [], search, phases), sort, descending), [rows, search, phases, sort, descending]);
  return html`<section aria-labelledby="jobs-title" class="jobs">
    <div class="heading">
      <h1 id="jobs-title">TrainJobs</h1>
      <span class=${`live ${live && !problem ? "is-live" : ""}`} role="status">${live && !problem ? "live" : "connecting …"}</span>
      <a class="button primary" href=${to("new")}>New fine-tuning</a>
    </div>
    <div class="filters">
      <${Namespaces} cluster=${cluster} namespace=${namespace} />
      <${Search} search=${search} />
      <${PhaseFilter} phases=${phases} counts=${counts} />
    </div>
    <${Problem} problem=${problem} />
    ${rows === null && !problem ? html`<p class="loading">Reading TrainJobs …</p>` : ""}
    ${rows !== null && html`<p class="count" role="status">${countText(shown.length, rows.length)}</p>`}
    ${rows !== null && !rows.length ? html`<${Notice}>There are no TrainJobs ${namespace ? `in the namespace ${namespace}` : "in this cluster"}.<//>` : ""}
    <${Rows} rows=${shown} sort=${sort} descending=${descending} />
  </section>`;
}

function countText(shown, all) {
  return shown === all ? counted(all, "TrainJob") : `${shown.toLocaleString("en")} of ${counted(all, "TrainJob")}`;
}

function Namespaces({ cluster, namespace }) {
  const choose = (event) => setValues({ ns: event.target.value || (cluster.namespaces ? "" : cluster.namespace) });
  if (!cluster.namespaces) {
    return html`<label class="field">Namespace <input name="namespace" value=${namespace} onChange=${choose} spellcheck="false" /></label>`;
  }
  return html`<label class="field"
    >Namespace
    <select name="namespace" value=${namespace} onChange=${choose}>
      <option value="">all</option>
      ${cluster.namespaces.map((name) => html`<option key=${name} value=${name} selected=${name === namespace}>${name}</option>`)}
    </select>
  </label>`;
}

function Search({ search }) {
  const field = useRef(null);
  useEffect(() => {
    const focus = (event) => {
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName || "");
      if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        field.current?.focus();
      }
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  return html`<label class="field grow"
    >Search
    <input
      ref=${field}
      type="search"
      name="search"
      value=${search}
      placeholder="name, runtime, reason, DAG …"
      aria-keyshortcuts="/"
      spellcheck="false"
      onInput=${(event) => setValues({ q: event.target.value })}
    />
  </label>`;
}

function PhaseFilter({ phases, counts }) {
  const toggle = (phase) => {
    const chosen = new Set(phases);
    if (!chosen.delete(phase)) chosen.add(phase);
    setValues({ phase: [...chosen].join(",") });
  };
  return html`<div class="chips" role="group" aria-label="Phases to show">
    ${PHASES.map(
      (phase) =>
        html`<button type="button" key=${phase} class="chip" aria-pressed=${phases.has(phase)} onClick=${() => toggle(phase)}>
          ${phase} <span class="chip-count">${counts.get(phase) || 0}</span>
        </button>`,
    )}
  </div>`;
}

function Rows({ rows, sort, descending }) {
  const rowHeight = useRowHeight();
  const { box, first, last, offset, height, show } = useWindow(rows.length, rowHeight);
  const [active, setActive] = useState("");
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -rows.length, End: rows.length }[event.key];
    if (!step || !rows.length) return;
    event.preventDefault();
    const now = rows.findIndex((row) => row.key === active);
    const next = Math.max(0, Math.min(rows.length - 1, now < 0 ? 0 : now + step));
    show(next);
    setActive(rows[next].key);
  };
  useEffect(() => {
    if (active) box.current?.querySelector("[data-active] a")?.focus({ preventScroll: true });
  }, [active]);
  return html`<div class="job-table" role="table" aria-label="TrainJobs" aria-rowcount=${rows.length + 1} aria-colcount=${COLUMNS.length}>
    <div role="rowgroup" class="job-head">
      <div role="row" class="job-row" aria-rowindex="1">
        ${COLUMNS.map(([id, title]) => html`<${SortHeader} key=${id} id=${id} title=${title} sort=${sort} descending=${descending} />`)}
      </div>
    </div>
    <div role="rowgroup" class="job-box" ref=${box} tabindex="0" aria-label="TrainJobs" onKeyDown=${move}>
      <div class="job-canvas" style=${{ height: `${height}px` }} role="presentation">
        <div style=${{ transform: `translateY(${offset}px)` }} role="presentation">
          ${rows.slice(first, last).map(
            (row, number) => html`<${Row} key=${row.key} row=${row} index=${first + number} height=${rowHeight} active=${row.key === active} />`,
          )}
        </div>
      </div>
    </div>
  </div>`;
}

function SortHeader({ id, title, sort, descending }) {
  const isCurrent = id === sort;
  const order = isCurrent ? (descending ? "descending" : "ascending") : "none";
  return html`<div role="columnheader" class=${`cell-${id}`} aria-sort=${order}>
    <button type="button" class="sort" onClick=${() => setValues({ sort: id, down: isCurrent && !descending ? "1" : "" })}>
      ${title}<span aria-hidden="true">${isCurrent ? (descending ? " ↓" : " ↑") : ""}</span>
    </button>
  </div>`;
}

function Row({ row, index, height, active }) {
  return html`<div role="row" class="job-row" aria-rowindex=${index + 2} style=${{ height: `${height}px` }} data-active=${active || undefined}>
    <div role="cell" class="cell-phase"><${Phase} phase=${row.phase} />${row.deleting ? html`<span class="muted"> deleting</span>` : ""}</div>
    <div role="cell" class="cell-name">
      <a href=${to("jobs", row.namespace, row.name)} title=${row.name}>${row.name}</a>
      <span class="second" title=${row.reason || row.namespace}>${row.reason || row.namespace}</span>
    </div>
    <div role="cell" class="cell-progress">
      <${Progress} percent=${row.percent} name=${`Progress of ${row.name}`} />
      <span class="second">${row.remaining !== null ? `${duration(row.remaining)} left` : ""}</span>
    </div>
    <div role="cell" class="cell-runtime" title=${row.runtime}>${row.runtime}</div>
    <div role="cell" class="cell-nodes">${row.nodes || ""}</div>
    <div role="cell" class="cell-creator"><${CreatorLink} creator=${row.creator} /></div>
    <div role="cell" class="cell-age"><${Age} since=${row.created} /></div>
  </div>`;
}

/** The height of a row in pixels, by the width of the page: the list has to know it before it renders. */
function useRowHeight() {
  const narrow = useMemo(() => matchMedia("(max-width: 720px)"), []);
  const [isNarrow, setIsNarrow] = useState(narrow.matches);
  useEffect(() => {
    const look = () => setIsNarrow(narrow.matches);
    narrow.addEventListener("change", look);
    return () => narrow.removeEventListener("change", look);
  }, []);
  return isNarrow ? NARROW_ROW : WIDE_ROW;
}
