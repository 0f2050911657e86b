// One TrainJob: its state in words, timeline, pods and events, and the tabs with curves, logs and objects. Live by one stream.
import { JobActions } from "../actions.js";
import { getJson, openStream, path } from "../api.js";
import { ordered } from "../curves.js";
import { html, useEffect, useState } from "../dom.js";
import { duration, figure } from "../format.js";
import { ownValue } from "../own_value.js";
import { to } from "../route.js";
import { Age, Button, Facts, Notice, Phase, Problem, Progress, Table, Tabs, Time, useLoaded } from "../widgets.js";
import { CreatorLink } from "./creator_link.js";
import { CurvesView } from "./curves_view.js";
import { LogView } from "./log_view.js";
import { ObjectsView } from "./objects_view.js";
import { Digest } from "./model_parts.js";
import { PodsTable } from "./pods_table.js";
import { JobRun } from "./runs_view.js";
import { TimelineChart } from "./timeline_chart.js";

const TABS = [
  ["overview", "Overview"],
  ["curves", "Curves"],
  ["logs", "Logs"],
  ["objects", "Objects"],
];
const NO_REASON = "The job is not waiting for anything that the cluster reports.";

/** `parts` of the address: jobs, namespace, name, tab. */
export function JobView({ parts, cluster }) {
  const [, namespace, name, tab = "overview"] = parts;
  const { job, absent, live, problem } = useJob(namespace, name);
  return html`<section aria-labelledby="job-title">
    <${Heading} job=${job} name=${name} namespace=${namespace} live=${live && !problem} absent=${absent} />
    <${Problem} problem=${problem} />
    ${job && !absent ? html`<${JobActions} job=${job.row} state=${`${job.row.phase} ${job.row.deleting}`} />` : ""}
    ${absent && !job ? html`<${Notice} kind="warning">There is no TrainJob ${name} in the namespace ${namespace}.<//>` : ""}
    ${absent && job ? html`<${Notice} kind="warning">The job was deleted. This is its last state.<//>` : ""}
    ${!job && !absent && !problem ? html`<p class="loading">Reading the job …</p>` : ""}
    <${Tabs} tabs=${TABS} current=${tab} name="Parts of the job" hrefOf=${(id) => to("jobs", namespace, name, id)} />
    <${Tab} tab=${tab} job=${job} namespace=${namespace} name=${name} cluster=${cluster} />
  </section>`;
}

function Tab({ tab, job, namespace, name }) {
  if (tab === "curves") return html`<${CurvesView} namespace=${namespace} name=${name} job=${job} />`;
  if (tab === "logs") return html`<${LogView} namespace=${namespace} name=${name} job=${job} />`;
  if (tab === "objects") return html`<${ObjectsView} namespace=${namespace} name=${name} />`;
  if (tab !== "overview") return html`<${Notice} kind="error">There is no such part: ${tab}<//>`;
  return job ? html`<${Overview} job=${job} namespace=${namespace} name=${name} />` : null;
}

/** Follows one job. `job` stays what it was when the job is deleted. */
function useJob(namespace, name) {
  const [state, setState] = useState({ job: null, absent: false, live: false, problem: null });
  useEffect(() => {
    const control = new AbortController();
    setState({ job: null, absent: false, live: false, problem: null });
    const follow = (message) => {
      if (message.type === "job") setState((before) => ({ ...before, job: message, absent: false, problem: null }));
      else if (message.type === "absent") setState((before) => ({ ...before, absent: true }));
      else if (message.type === "problem") setState((before) => ({ ...before, problem: message.problem }));
    };
    const tell = ({ live, problem }) => setState((before) => ({ ...before, live, problem: live ? before.problem : problem }));
    openStream(`trainjobs/${path(namespace, name)}/stream`, follow, { signal: control.signal, onState: tell });
    return () => control.abort();
  }, [namespace, name]);
  return state;
}

function Heading({ job, name, namespace, live, absent }) {
  const row = job?.row;
  return html`<div>
    <p class="crumbs"><a href=${to("jobs")}>TrainJobs</a> / ${namespace}</p>
    <div class="heading">
      <h1 id="job-title">${name}</h1>
      ${row && !absent ? html`<${Phase} phase=${row.phase} />` : ""}
      <span class=${`live ${live ? "is-live" : ""}`} role="status">${live ? "live" : "connecting …"}</span>
    </div>
    ${row ? html`<p class="reason" role="status">${row.reason}</p>` : ""}
    ${row && row.percent !== null ? html`<div class="job-progress"><${Progress} percent=${row.percent} name="Progress" /> ${row.remaining !== null ? html`<span class="muted">${duration(row.remaining)} left</span>` : ""}</div>` : ""}
  </div>`;
}

function Overview({ job, namespace, name }) {
  const { row, facts } = job;
  return html`<div>
    <${Waiting} job=${job} />
    ${row.phase === "Failed" || job.failing ? html`<${Report} namespace=${namespace} name=${name} uid=${row.uid} failing=${job.failing} />` : ""}
    <h2>Timeline</h2>
    <${TimelineChart} timeline=${job.timeline} />
    <${Facts}
      facts=${[
        ["Runtime", row.runtime],
        ["Nodes", row.nodes || ""],
        ["Queue", row.queue],
        ["Made by", row.creator.name ? html`<${CreatorLink} creator=${row.creator} />` : ""],
        ["Created", html`<${Time} at=${row.created} />`],
        ["Age", html`<${Age} since=${row.created} />`],
        ["Ended", row.ended ? html`<${Time} at=${row.ended} />` : ""],
        ["Took", row.ended ? html`<${Age} since=${row.created} until=${row.ended} />` : ""],
        ["Restarts", facts.restarts?.some(Boolean) ? `${facts.restarts[0]} of ${facts.restarts[1]}` : ""],
        ["Attempt", facts.attempt > 1 ? facts.attempt : ""],
        ["Preemptions", facts.preemptions || ""],
        ["Retries", facts.retries || ""],
        ["Managed by", facts.managedBy === "trainer.kubeflow.org/trainjob-controller" ? "" : facts.managedBy],
        ...Object.entries(facts.annotations).map(([key, value]) => [ANNOTATIONS[key] || key, noteOf(key, value)]),
      ]}
    />
    <${Figures} metrics=${row.metrics} />
    <${JobRun} namespace=${namespace} name=${name} />
    <h2>Pods</h2>
    ${job.podsProblem ? html`<${Notice} kind="warning">Pods cannot be read: ${job.podsProblem}<//>` : ""}
    <${PodsTable} pods=${job.pods} hrefOfLog=${(pod) => `${to("jobs", namespace, name, "logs")}?pod=${encodeURIComponent(pod.name)}`} />
    <h2>Events</h2>
    ${job.eventsProblem ? html`<${Notice} kind="warning">Events cannot be read: ${job.eventsProblem}<//>` : ""}
    <${Events} events=${job.events} />
    <h2>Conditions</h2>
    <${Conditions} conditions=${job.conditions} />
  </div>`;
}

const ANNOTATIONS = {
  "run-folder": "Folder of the run",
  "resumes-from": "Starts from",
  "dataset-digest": "Dataset",
  "model-digest": "Model",
};

function noteOf(key, value) {
  return key.endsWith("-digest") ? html`<${Digest} digest=${value} />` : value;
}

function Waiting({ job }) {
  const { waiting, row } = job;
  if (waiting) return html`<${Notice} kind=${waiting.final ? "error" : "warning"}>Waits: ${waiting.text}<//>`;
  return row.phase === "Starting" && !row.reason ? html`<p class="muted">${NO_REASON}</p>` : null;
}

function Figures({ metrics }) {
  const names = ordered(Object.keys(metrics)).flat();
  if (!names.length) return null;
  return html`<div><h2>Metrics</h2><${Facts} facts=${names.map((name) => [name, figure(ownValue(metrics, name))])} /></div>`;
}

function Report({ namespace, name, uid, failing }) {
  const { value, problem, loading, reload } = useLoaded((signal) => getJson(`trainjobs/${path(namespace, name)}/report`, { signal }), [uid, failing]);
  return html`<section class="report" aria-labelledby="report-title">
    <h2 id="report-title">${failing ? "Why it fails" : "Why it failed"}</h2>
    <${Problem} problem=${problem} />
    ${loading ? html`<p class="loading">Reading pods, events and logs …</p>` : ""}
    ${value ? html`<pre class="report-text" tabindex="0" aria-label="Failure report">${value.text}</pre>` : ""}
    ${!loading ? html`<${Button} kind="small" onClick=${reload}>Read again<//>` : ""}
  </section>`;
}

function Events({ events }) {
  const newest = [...events].reverse();
  return html`<${Table}
    name="Events"
    columns=${["Time", "Type", "Reason", "Object", "Message"]}
    rows=${newest.map((event) => [
      html`<${Time} at=${event.at} />`,
      event.type === "Warning" ? html`<span class="phase phase-restarting">${event.type}</span>` : event.type,
      event.count > 1 ? `${event.reason} (${event.count} times)` : event.reason,
      event.object,
      event.message,
    ])}
    empty="No events. Clusters keep them for an hour."
  />`;
}

function Conditions({ conditions }) {
  return html`<${Table}
    name="Conditions"
    columns=${["Type", "Status", "Since", "Reason", "Message"]}
    rows=${conditions.map((each) => [each.type, each.status, html`<${Time} at=${each.lastTransitionTime} />`, each.reason, each.message])}
    empty="No conditions yet."
  />`;
}
