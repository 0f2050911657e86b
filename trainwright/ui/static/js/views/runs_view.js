// The runs of the workspaces of this machine, and one of them: prepared inputs, trainings, evaluations, reports and curves.
import { getJson, query } from "../api.js";
import { laidOver, merged, ordered } from "../curves.js";
import { html, useMemo, useState } from "../dom.js";
import { bytes, counted, figure } from "../format.js";
import { Markdown } from "../markdown.js";
import { ownValue } from "../own_value.js";
import { setValues, to } from "../route.js";
import { Age, Button, Facts, Notice, Table, Tabs, Time, useLoaded } from "../widgets.js";
import { Chart, Charts } from "./chart.js";
import { CompareRuns, MOST_RUNS, compareLink } from "./compare_runs.js";
import { CreatorLink } from "./creator_link.js";
import { Evaluation } from "./evaluation.js";
import { Digest, Loading, Loss, Prepared, ShowMore, ToolLinks, exportLink, runLink, runTitle, usePages, valueText } from "./model_parts.js";

const TABS = [
  ["overview", "Overview"],
  ["trainings", "Trainings"],
  ["files", "Reports and files"],
];
const COLOURS = { "in progress": "running", suspended: "suspended", succeeded: "succeeded", failed: "failed", "given up": "restarting" };

/** `parts` are those of the address after `runs`: WORKSPACE, RUN, or `compare`. */
export function RunsView({ cluster, parts, values }) {
  if (!cluster.mayReadFiles) {
    return html`<section>
      <h1>Runs</h1>
      <${Notice}>This page runs in a cluster, and reads no workspaces. To see the runs on a claim, run
        <code>trainwright ui</code> where it is mounted.<//>
    </section>`;
  }
  const namespace = cluster.namespaces ? "" : cluster.namespace;
  if (parts[0] === "compare") return html`<${CompareRuns} keys=${values.getAll("run")} namespace=${namespace} />`;
  if (parts.length >= 2) {
    return html`<${RunPage} key=${parts.join("/")} workspace=${parts[0]} run=${parts[1]} namespace=${namespace} values=${values} />`;
  }
  return html`<${RunLists} namespace=${namespace} />`;
}

function RunLists({ namespace }) {
  const loaded = useLoaded((signal) => getJson("workspaces", { signal }), []);
  const [chosen, setChosen] = useState([]);
  const found = loaded.value?.workspaces;
  const toggle = (key) => setChosen(chosen.includes(key) ? chosen.filter((each) => each !== key) : [...chosen, key]);
  const why = chosen.length < 2 ? "choose two or more runs" : chosen.length > MOST_RUNS ? `choose at most ${MOST_RUNS} runs` : "";
  return html`<section>
    <div class="heading">
      <h1>Runs</h1>
      ${found?.length ? html`<${Button} why=${why} onClick=${() => location.assign(compareLink(chosen))}>Compare<//>` : ""}
    </div>
    <${Loading} loaded=${loaded} name="workspaces" />
    ${found && !found.length ? html`<${Notice}>No workspace of this machine has runs yet.<//>` : ""}
    ${(found || []).map((workspace) => html`<${RunList} key=${workspace.id} workspace=${workspace} namespace=${namespace} chosen=${chosen} onToggle=${toggle} />`)}
  </section>`;
}

function RunList({ workspace, namespace, chosen, onToggle }) {
  const { loaded, pages, more } = usePages(
    (before, signal) => getJson(`runs${query({ workspace: workspace.id, namespace, after: before?.next })}`, { signal }),
    [workspace.id, namespace],
  );
  const rows = pages.flatMap((page) => page.runs);
  const first = loaded.value;
  return html`<section>
    <h2>${workspace.path}</h2>
    <${Loading} loaded=${loaded} name="runs" />
    ${first
      ? html`<p class="count" role="status">
            ${rows.length === first.total ? counted(rows.length, "run") : `${rows.length} of ${counted(first.total, "run")}`}
            ${first.cut ? " (more are not read)" : ""}
          </p>
          <${Table}
            name=${`Runs of ${workspace.path}`}
            columns=${["Compare", "Run", "State", "Started", "Loss", "Exported"]}
            keys=${rows.map((row) => row.name)}
            rows=${rows.map((row) => cells(workspace.id, row, chosen, onToggle))}
            empty="There are no runs in this workspace."
          />`
      : ""}
    <${ShowMore} more=${more} is=${pages.at(-1)?.next}>Show more runs<//>
  </section>`;
}

function cells(workspace, row, chosen, onToggle) {
  const title = runTitle(row);
  const key = `${workspace}/${row.name}`;
  return [
    html`<input type="checkbox" checked=${chosen.includes(key)} onChange=${() => onToggle(key)} aria-label=${`Compare ${title}`} />`,
    html`<span class="at-least"><a href=${runLink(workspace, row.name)}>${title}</a>${title.endsWith(row.name) ? "" : html`<span class="second wrapped">${row.name}</span>`}</span>`,
    html`<${RunState} row=${row} /><span class="second wrapped">${row.reason}</span>`,
    row.started ? html`<${Age} since=${row.started} /> ago` : "",
    row.evaluation ? html`<${Loss} loss=${row.evaluation.loss} of=${row.evaluation.of} />` : "",
    row.exported ? html`<a href=${exportLink(row.exported)}>${row.exported.split("/").slice(-2).join("/")}</a>` : "",
  ];
}

function RunState({ row }) {
  if (row.problem) return html`<span class="muted">${row.problem}</span>`;
  return html`<span class=${`phase phase-${ownValue(COLOURS, row.state) || "queued"}`}>${row.state}</span>`;
}

function RunPage({ workspace, run, namespace, values }) {
  const loaded = useLoaded((signal) => getJson(`run${query({ workspace, run, namespace })}`, { signal }), [workspace, run, namespace]);
  const tab = TABS.some(([id]) => id === values.get("tab")) ? values.get("tab") : "overview";
  const found = loaded.value;
  return html`<section>
    <p class="crumbs"><a href=${to("runs")}>All runs</a></p>
    <div class="heading">
      <h1>${found ? runTitle(found) : run}</h1>
      ${found ? html`<${RunState} row=${found} />` : ""}
      <${Button} onClick=${loaded.reload}>Read again<//>
    </div>
    ${found?.reason ? html`<p class="reason">${found.reason}</p>` : ""}
    <${Loading} loaded=${loaded} name="the run" />
    ${found
      ? html`<div>
          <${Tabs} name="Parts of the run" tabs=${TABS} current=${tab} hrefOf=${(id) => `${runLink(workspace, run)}?tab=${id}`} />
          ${tab === "overview" ? html`<${Overview} workspace=${workspace} run=${found} />` : ""}
          ${tab === "trainings" ? html`<${Trainings} workspace=${workspace} run=${found} />` : ""}
          ${tab === "files" ? html`<${Files} workspace=${workspace} run=${found} chosen=${values.get("file") || found.reports[0] || ""} />` : ""}
        </div>`
      : ""}
  </section>`;
}

/** Figures and sample of the newest evaluation come first; those of earlier ones are behind a button. */
function Overview({ workspace, run }) {
  const [newest, ...earlier] = run.evaluations;
  const facts = [
    ["run", run.run],
    ["made by", run.creator.name ? html`<${CreatorLink} creator=${run.creator} />` : run.owner],
    ["started", run.started && html`<${Time} at=${run.started} />`],
    ["last activity", run.updated && html`<${Time} at=${run.updated} />`],
    ["ended", run.ended && html`<${Time} at=${run.ended} />`],
    ["exported", run.exported && html`<a href=${exportLink(run.exported)}>${run.exported}</a>`],
    ...earlierOf(run, "exported").map((uri) => ["exported before", html`<a href=${exportLink(uri)}>${uri}</a>`]),
    ...earlierOf(run, "dataset").map((digest) => ["dataset before", html`<${Digest} digest=${digest} />`]),
    ...earlierOf(run, "model").map((digest) => ["model before", html`<${Digest} digest=${digest} />`]),
    ["folder", html`<code>${run.path}</code>`],
  ];
  const inputs = Object.entries(run.inputs || {});
  return html`<div>
    ${run.findings.map((line) => html`<${Notice} key=${line} kind="warning">Dataset: ${line}<//>`)}
    ${newest ? html`<${Evaluation} workspace=${workspace} run=${run.name} each=${newest} />` : ""}
    ${earlier.length
      ? html`<details>
          <summary>${counted(earlier.length, "earlier evaluation")}</summary>
          ${earlier.map((each) => html`<${Evaluation} key=${each.digest} workspace=${workspace} run=${run.name} each=${each} />`)}
        </details>`
      : ""}
    <h2>Run</h2>
    <${Facts} facts=${facts} />
    <h2>Inputs</h2>
    <div class="columns">
      <${Prepared} kind="dataset" prepared=${run.prepared.dataset} digest=${run.dataset} />
      <${Prepared} kind="model" prepared=${run.prepared.model} digest=${run.model} />
    </div>
    ${inputs.length ? html`<h3>Other inputs</h3><${Facts} facts=${inputs.map(([name, value]) => [name, valueText(value)])} />` : ""}
  </div>`;
}

/** What earlier trainings of the run had, the newest first. */
function earlierOf(run, name) {
  return [...(ownValue(run.earlier || {}, name) || [])].reverse();
}

function Trainings({ workspace, run }) {
  return html`<div>${run.trainings.map((training) => html`<${Training} key=${training.folder} workspace=${workspace} training=${training} />`)}</div>`;
}

function Training({ workspace, training }) {
  return html`<section>
      <h2>${training.name || "Training"}</h2>
      <${Facts}
        facts=${[
          ["TrainJobs, the newest last", training.trainjobs.join(", ")],
          ["checkpoints", training.checkpointCount ? `${training.checkpointCount}: ${training.checkpoints.slice(0, 5).join(", ")}${training.checkpointCount > 5 ? " …" : ""}` : "none"],
        ]}
      />
      ${training.problem ? html`<${Notice} kind="warning">${training.problem}<//>` : ""}
      <${ToolLinks} links=${training.links} />
      <${History} workspace=${workspace} folder=${training.folder} />
    </section>`;
}

/** The metrics of a training, as curves and as a table. */
function History({ workspace, folder }) {
  const loaded = useLoaded((signal) => getJson(`history${query({ workspace, folder })}`, { signal }), [workspace, folder]);
  const found = loaded.value;
  if (!found) return html`<${Loading} loaded=${loaded} name="the metrics" />`;
  const names = ordered(Object.keys(found.series)).flat();
  return html`<div>
    ${found.notes.map((note) => html`<${Notice} key=${note}>${note}<//>`)}
    <${Curves} history=${found} />
    <${Table}
      name="Metrics"
      columns=${["Metric", "Points", "First", "Last", "Lowest", "Highest"]}
      keys=${names}
      rows=${names.map((name) => seriesCells(name, found.series[name]))}
      empty="No metrics were recorded."
    />
    ${found.source ? html`<p class="muted">From ${found.source}, by ${found.axis}.</p>` : ""}
  </div>`;
}

function Curves({ history }) {
  const metrics = useMemo(() => merged(history, null), [history]);
  return html`<${Charts}
    names=${[...metrics.keys()]}
    chartOf=${(name) => html`<${Curve} key=${name} name=${name} values=${metrics.get(name)} axis=${history.axis} />`}
  />`;
}

function Curve({ name, values, axis }) {
  const { data, names } = useMemo(() => laidOver([{ name, values }]), [name, values]);
  return html`<${Chart} title=${name} data=${data} names=${names} axis=${axis} />`;
}

function seriesCells(name, points) {
  const finite = points.map(([, value]) => value).filter((value) => value !== null);
  let lowest = Infinity;
  let highest = -Infinity;
  for (const value of finite) {
    lowest = Math.min(lowest, value);
    highest = Math.max(highest, value);
  }
  if (!finite.length) return [name, points.length, "not finite", "not finite", "", ""];
  const last = points.at(-1)[1];
  return [name, points.length, figure(finite[0]), last === null ? "not finite" : figure(last), figure(lowest), figure(highest)];
}

function Files({ workspace, run, chosen }) {
  const names = [...new Set([...run.reports, ...run.files, ...run.evaluations.filter((each) => !each.problem).map((each) => each.summary)])];
  return html`<div>
    <div class="chips" role="group" aria-label="Files of the run">
      ${names.map(
        (name) =>
          html`<button type="button" key=${name} class="chip" aria-pressed=${name === chosen} onClick=${() => setValues({ file: name })}>
            ${name}
          </button>`,
      )}
    </div>
    ${names.length ? "" : html`<p class="empty">This run has no reports or text files.</p>`}
    ${chosen ? html`<${TextFile} key=${chosen} workspace=${workspace} run=${run.name} path=${chosen} />` : ""}
  </div>`;
}

/** A text file of a run: Markdown as elements, anything else as it is. */
function TextFile({ workspace, run, path }) {
  const loaded = useLoaded((signal) => getJson(`run/file${query({ workspace, run, path })}`, { signal }), [workspace, run, path]);
  const file = loaded.value;
  if (!file) return html`<${Loading} loaded=${loaded} name=${path} />`;
  return html`<section aria-label=${path}>
    <h2>${path}</h2>
    <p class="muted">${bytes(file.bytes)}${file.cut ? ", of which the beginning is shown" : ""}</p>
    ${path.endsWith(".md") ? html`<${Markdown} text=${file.text} />` : html`<pre class="code" tabindex="0" role="group" aria-label="Text">${file.text}</pre>`}
  </section>`;
}

/** What files and stores know of a TrainJob: its run, the exports it names, and trackers. For the page of a job. */
export function JobRun({ namespace, name }) {
  const loaded = useLoaded((signal) => getJson(`job-run${query({ namespace, name })}`, { signal }), [namespace, name]);
  const found = loaded.value;
  if (!found) return loaded.problem?.code === 404 ? null : html`<${Loading} loaded=${loaded} name="the run" />`;
  if (!found.run && !found.exports.length && !found.links.length) return null;
  return html`<div>
    <h2>Run</h2>
    <${Facts}
      facts=${[
        ["run", found.run && html`<a href=${runLink(found.workspace, found.run)}>${found.run}</a>`],
        ["resumes from", found.exports.length ? found.exports.map((uri) => html`<a key=${uri} href=${exportLink(uri)}>${uri}</a>`) : ""],
      ]}
    />
    <${ToolLinks} links=${found.links} />
  </div>`;
}

