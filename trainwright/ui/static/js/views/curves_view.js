// The curves of a job's metrics: live while it trains, of the files of its run afterwards, other runs laid over them.
import { getJson, query, untilAnswered } from "../api.js";
import { laidOver, merged, smoothed } from "../curves.js";
import { html, useEffect, useMemo, useState } from "../dom.js";
import { useJobRows } from "../job_rows.js";
import { Button, Notice, Problem } from "../widgets.js";
import { Chart, Charts } from "./chart.js";

const AGAIN_MS = 5000;
const MOST_RUNS = 8;
const SMOOTHING = [
  ["0", "none"],
  ["0.6", "some"],
  ["0.9", "much"],
];

/** `job` is the live state of the job, null before it is known. */
export function CurvesView({ namespace, name, job }) {
  const isActive = Boolean(job) && !["Succeeded", "Failed"].includes(job.row.phase);
  const [others, setOthers] = useState([]);
  const [smoothing, setSmoothing] = useState(0);
  const [logarithmic, setLogarithmic] = useState(false);
  const own = useHistory(namespace, name, job?.row.uid || "", isActive);
  const histories = useHistories(others);
  const metrics = useMemo(() => merged(own.value, job?.live), [own.value, job?.live]);
  const runs = [{ name, metrics }, ...others.map((key, number) => ({ name: key, metrics: merged(histories[number] || null, null) }))];
  const axis = own.value?.axis || job?.live?.axis || "step";
  return html`<div class="curves">
    <div class="filters">
      <${Overlay} namespace=${namespace} own=${`${namespace}/${name}`} others=${others} onChange=${setOthers} />
      <label class="field"
        >Smoothing
        <select name="smoothing" onChange=${(event) => setSmoothing(Number(event.target.value))}>
          ${SMOOTHING.map(([weight, title]) => html`<option key=${weight} value=${weight}>${title}</option>`)}
        </select>
      </label>
      <label class="check"><input type="checkbox" name="logarithmic" checked=${logarithmic} onChange=${(event) => setLogarithmic(event.target.checked)} /> logarithmic</label>
    </div>
    ${own.value?.source ? html`<p class="muted" role="status">From ${own.value.source}${isActive ? ", and live" : ""}.</p>` : ""}
    <${Problem} problem=${own.problem} />
    ${!metrics.size && !own.loading ? html`<${Notice}>No metrics are known${isActive ? " yet" : ""}: the training has reported none, and its run's files have none.<//>` : ""}
    <${Charts}
      names=${[...metrics.keys()]}
      chartOf=${(metric) => html`<${MetricChart} key=${metric} metric=${metric} runs=${runs} axis=${axis} smoothing=${smoothing} logarithmic=${logarithmic} />`}
    />
  </div>`;
}

function MetricChart({ metric, runs, axis, smoothing, logarithmic }) {
  const { data, names } = useMemo(() => {
    const having = runs.filter((run) => run.metrics.has(metric)).map((run) => ({ name: run.name, values: run.metrics.get(metric) }));
    const laid = laidOver(having);
    return { names: laid.names, data: [laid.data[0], ...laid.data.slice(1).map((values) => smoothed(values, smoothing))] };
  }, [metric, runs, smoothing]);
  return html`<${Chart} title=${metric} data=${data} names=${names} axis=${axis} logarithmic=${logarithmic} />`;
}

/** Chooses other jobs of the namespace to lay over. */
function Overlay({ namespace, own, others, onChange }) {
  const { rows } = useJobRows(namespace);
  const [text, setText] = useState("");
  const keys = (rows || []).map((row) => row.key).filter((key) => key !== own && !others.includes(key));
  const add = (key) => {
    if (!keys.includes(key) || others.length >= MOST_RUNS - 1) return;
    onChange([...others, key]);
    setText("");
  };
  return html`<div class="field grow">
    <label
      >Compare with
      <input
        name="overlay"
        list="other-jobs"
        value=${text}
        placeholder="another TrainJob"
        spellcheck="false"
        onInput=${(event) => {
          setText(event.target.value);
          add(event.target.value);
        }}
      />
    </label>
    <datalist id="other-jobs">${keys.slice(0, 500).map((key) => html`<option key=${key} value=${key} />`)}</datalist>
    <span class="chips">
      ${others.map(
        (key) => html`<${Button} key=${key} kind="small" label=${`Remove ${key}`} onClick=${() => onChange(others.filter((each) => each !== key))}>${key} ×<//>`,
      )}
    </span>
  </div>`;
}

/** The history of a job from its run's files, read again while the job is active. */
function useHistory(namespace, name, uid, isActive) {
  const [state, setState] = useState({ value: null, problem: null, loading: true });
  useEffect(() => {
    if (!uid) return undefined;
    const control = new AbortController();
    let timer;
    const read = async () => {
      try {
        const value = await historyOf(namespace, name, control.signal);
        setState({ value, problem: null, loading: false });
      } catch (problem) {
        if (!control.signal.aborted) setState((before) => ({ ...before, problem, loading: false }));
      }
      if (isActive && !control.signal.aborted) timer = setTimeout(read, AGAIN_MS);
    };
    read();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [namespace, name, uid, isActive]);
  return state;
}

function useHistories(keys) {
  const [known, setKnown] = useState(new Map());
  useEffect(() => {
    const control = new AbortController();
    for (const key of keys.filter((each) => !known.has(each))) {
      const [namespace, name] = key.split("/");
      untilAnswered((signal) => historyOf(namespace, name, signal), control.signal).then(
        (value) => setKnown((before) => new Map(before).set(key, value)),
        () => control.signal.aborted || setKnown((before) => new Map(before).set(key, null)),
      );
    }
    return () => control.abort();
  }, [keys.join("\n")]);
  return keys.map((key) => known.get(key));
}

function historyOf(namespace, name, signal) {
  return getJson(`history${query({ namespace, name })}`, { signal });
}

