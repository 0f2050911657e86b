// A fine-tuning that was started on the page: its steps, how it ends, and the buttons that stop and resume it.
import { getJson, path, postJson } from "../api.js";
import { html, useEffect, useState } from "../dom.js";
import { figure } from "../format.js";
import { ownValue } from "../own_value.js";
import { to } from "../route.js";
import { Age, Button, Confirmation, Facts, Notice, Problem, Table, Time } from "../widgets.js";

const AGAIN_MS = 1500;
const STATES = {
  running: "running",
  succeeded: "succeeded",
  failed: "failed",
  interrupted: "stopped",
  lost: "stopped without a word",
};

/** `run` is its id. */
export function LaunchView({ run }) {
  const [state, setState] = useState({ launch: null, problem: null });
  const [asking, setAsking] = useState(false);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    let timer;
    const read = async () => {
      try {
        const { launch } = await getJson(`launches/${path(run)}`, { signal: control.signal });
        setState({ launch, problem: null });
        if (launch.state === "running") timer = setTimeout(read, AGAIN_MS);
      } catch (problem) {
        if (!control.signal.aborted) setState((before) => ({ ...before, problem }));
      }
    };
    read();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [run, turn]);
  const { launch, problem } = state;
  const resume = async () => {
    try {
      const answer = await postJson(`launches/${path(run)}/resume`, {});
      setState({ launch: answer.launch, problem: null });
      setTurn((before) => before + 1);
    } catch (error) {
      setState((before) => ({ ...before, problem: error }));
    }
  };
  return html`<section aria-labelledby="launch-title">
    <p class="crumbs"><a href=${to("new")}>New fine-tuning</a></p>
    <div class="heading">
      <h1 id="launch-title">${run}</h1>
      ${launch ? html`<span class=${`phase phase-${phaseOf(launch.state)}`} role="status">${STATES[launch.state]}</span>` : ""}
      <span class="actions">
        ${launch?.state === "running" ? html`<${Button} onClick=${() => setAsking(true)}>Stop<//>` : ""}
        ${launch && ["failed", "interrupted", "lost"].includes(launch.state) ? html`<${Button} kind="primary" onClick=${resume}>Resume<//>` : ""}
      </span>
    </div>
    <${Problem} problem=${problem} />
    ${launch ? html`<${Launch} launch=${launch} />` : ""}
    ${asking
      ? html`<${Confirmation}
          title=${`Stop ${run}?`}
          consequence="Its training is suspended, and its checkpoints are kept. It can be resumed here."
          verb="Stop"
          action=${() => postJson(`launches/${path(run)}/stop`, {})}
          onDone=${() => {
            setAsking(false);
            setTurn((before) => before + 1);
          }}
          onClose=${() => setAsking(false)}
        />`
      : ""}
  </section>`;
}

function Launch({ launch }) {
  return html`<div>
    ${launch.message ? html`<${Notice} kind=${launch.state === "failed" ? "error" : "note"}><span class="wrapped">${launch.message}</span><//>` : ""}
    ${launch.warnings.map((text) => html`<${Notice} key=${text} kind="warning">${text}<//>`)}
    <ol class="steps" aria-label="Steps">
      ${launch.steps.map(
        (step) =>
          html`<li key=${step.name} class=${`step step-${step.state}`}>
            <b>${step.name}</b> <span>${step.state}</span>
            ${step.since ? html`<${Age} since=${step.since} until=${step.until} />` : ""}
            ${step.name === "train" && launch.trainjob ? html`<a href=${to("jobs", launch.namespace, launch.trainjob)}>${launch.trainjob}</a>` : ""}
            ${step.note && step.name !== "train" ? html`<span class="wrapped">${step.note}</span>` : ""}
          </li>`,
      )}
    </ol>
    <${Result} result=${launch.result} />
  </div>`;
}

function Result({ result }) {
  if (!result) return null;
  const { before = {}, after = {} } = result.evaluation || {};
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return html`<div>
    <h2>Result</h2>
    <${Facts}
      facts=${[
        ["Checkpoint", result.checkpoint?.uri],
        ["Digest", result.checkpoint?.digest],
        ["Summary", result.summary],
        ["Promotion", result.promotion?.reason],
        ["Registered as", result.registration?.uri],
      ]}
    />
    <${Table}
      name="Evaluation"
      columns=${["Figure", "Base model", "Fine-tuned"]}
      rows=${names.map((name) => [name, figure(ownValue(before, name)), figure(ownValue(after, name))])}
      empty="Not evaluated."
    />
  </div>`;
}

/** The runs that this page has started. */
export function LaunchesList() {
  const [state, setState] = useState({ launches: [], problem: null, loading: true });
  useEffect(() => {
    const control = new AbortController();
    getJson("launches", { signal: control.signal }).then(
      ({ launches }) => setState({ launches, problem: null, loading: false }),
      (problem) => control.signal.aborted || setState({ launches: [], problem, loading: false }),
    );
    return () => control.abort();
  }, []);
  if (state.problem) return html`<${Problem} problem=${state.problem} />`;
  if (state.loading) return html`<p class="loading">Reading …</p>`;
  return html`<${Table}
    name="Started on this page"
    columns=${["Run", "State", "Began", "Message"]}
    keys=${state.launches.map((launch) => launch.run)}
    rows=${state.launches.map((launch) => [
      html`<a href=${to("new", launch.run)}>${launch.run}</a>`,
      STATES[launch.state],
      html`<${Time} at=${launch.began} />`,
      launch.message,
    ])}
    empty="Nothing was started here yet."
  />`;
}

function phaseOf(state) {
  return { running: "running", succeeded: "succeeded", failed: "failed" }[state] || "suspended";
}
