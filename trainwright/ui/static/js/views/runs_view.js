// The runs of the workspaces of this machine, and one of them: prepared inputs, trainings, evaluations, reports and curves.
import { getJson, query } from "../api.js";
import { laidOver, merged, ordered } from "../curves.js";
import { html, useEffect, useMemo, useState } from "../dom.js";
import { bytes, counted, figure } from "../format.js";
import { Markdown } from "../markdown.js";
import { ownValue } from "../own_value.js";
import { setValues, to } from "../route.js";
import { Age, Button, Facts, Notice, Problem, Table, Tabs, Time, useLoaded } from "../widgets.js";
import { Chart } from "./chart.js";
import { Digest, Loading, Prepared, ToolLinks, exportLink, runLink, valueText } from "./model_parts.js";

const MOST_CHARTS = 24;
const TABS = [
  ["overview", "Overview"],
  ["trainings", "Trainings"],
  ["evaluations", "Evaluations"],
  ["files", "Reports and files"],
];

/** `parts` are those of the address after `runs`: WORKSPACE, RUN. */
export function RunsView({ cluster, parts, values }) {
  if (!cluster.mayReadFiles) {
    return html`<section>
      <h1>Runs</h1>
      <${Notice}>This page runs in a cluster, and reads no workspaces. To see the runs on a claim, run
        <code>trainwright ui</code> where it is mounted.<//>
    </section>`;
  }
  if (parts.length >= 2) return html`<${RunPage} key=${parts.join("/")} workspace=${parts[0]} run=${parts[1]} values=${values} />`;
  return html`<${RunLists} />`;
}

function RunLists() {
  const loaded = useLoaded((signal) => getJson("workspaces", { signal }), []);
  const found = loaded.value?.workspaces;
  return html`<section>
    <h1>Runs</h1>
    <${Loading} loaded=${loaded} name="workspaces" />
    ${found && !found.length ? html`<${Notice}>No workspace of this machine has runs yet.<//>` : ""}
    ${(found || []).map((workspace) => html`<${RunList} key=${workspace.id} workspace=${workspace} />`)}
  </section>`;
}

function RunList({ workspace }) {
  const first = useLoaded((signal) => getJson(`runs${query({ workspace: workspace.id })}`, { signal }), [workspace.id]);
  const [more, setMore] = useState({ rows: [], next: null, problem: null, busy: false });
  useEffect(() => setMore({ rows: [], next: null, problem: null, busy: false }), [first.value]);
  const rows = [...(first.value?.runs || []), ...more.rows];
  const next = more.next ?? first.value?.next;
  const readMore = async () => {
    setMore({ ...more, busy: true, problem: null });
    try {
      const page = await getJson(`runs${query({ workspace: workspace.id, after: next })}`);
      setMore({ rows: [...more.rows, ...page.runs], next: page.next, problem: null, busy: false });
    } catch (problem) {
      setMore({ ...more, problem, busy: false });
    }
  };
  return html`<section>
    <h2>${workspace.path}</h2>
    <${Loading} loaded=${first} name="runs" />
    ${first.value
      ? html`<p class="count" role="status">
            ${rows.length === first.value.total ? counted(rows.length, "run") : `${rows.length} of ${counted(first.value.total, "run")}`}
            ${first.value.cut ? " (more are not read)" : ""}
          </p>
          <${Table}
            name=${`Runs of ${workspace.path}`}
            columns=${["Run", "State", "Owner", "Started", "Dataset", "Exported"]}
            keys=${rows.map((row) => row.name)}
            rows=${rows.map((row) => cells(workspace.id, row))}
            empty="There are no runs in this workspace."
          />`
      : ""}
    <${Problem} problem=${more.problem} />
    ${next ? html`<${Button} onClick=${readMore} why=${more.busy ? "being read" : ""}>Show more runs<//>` : ""}
  </section>`;
}

function cells(workspace, row) {
  const title = row.run || row.name;
  return [
    html`<a href=${runLink(workspace, row.name)}>${title}</a>${title !== row.name ? html`<span class="second">${row.name}</span>` : ""}`,
    html`<${RunState} row=${row} />`,
    row.owner || "",
    row.started ? html`<${Age} since=${row.started} /> ago` : "",
    row.dataset ? html`<${Digest} digest=${row.dataset} />` : "",
    row.exported ? html`<a href=${exportLink(row.exported)}>${row.exported.split("/").slice(-2).join("/")}</a>` : "",
  ];
}

function RunState({ row }) {
  if (row.problem) return html`<span class="muted">${row.problem}</span>`;
  return html`<span class=${`phase phase-${row.state === "active" ? "running" : "succeeded"}`}>${row.state}</span>`;
}

function RunPage({ workspace, run, values }) {
  const loaded = useLoaded((signal) => getJson(`run${query({ workspace, run })}`, { signal }), [workspace, run]);
  const tab = TABS.some(([id]) => id === values.get("tab")) ? values.get("tab") : "overview";
  const found = loaded.value;
  return html`<section>
    <p class="crumbs"><a href=${to("runs")}>All runs</a></p>
    <div class="heading">
      <h1>${found?.run || run}</h1>
      ${found ? html`<${RunState} row=${found} />` : ""}
      <${Button} onClick=${loaded.reload}>Read again<//>
    </div>
    <${Loading} loaded=${loaded} name="the run" />
    ${found
      ? html`<div>
          <${Tabs} name="Parts of the run" tabs=${TABS} current=${tab} hrefOf=${(id) => `${runLink(workspace, run)}?tab=${id}`} />
          ${tab === "overview" ? html`<${Overview} run=${found} />` : ""}
          ${tab === "trainings" ? html`<${Trainings} workspace=${workspace} run=${found} />` : ""}
          ${tab === "evaluations" ? html`<${Evaluations} workspace=${workspace} run=${found} />` : ""}
          ${tab === "files" ? html`<${Files} workspace=${workspace} run=${found} chosen=${values.get("file") || found.reports[0] || ""} />` : ""}
        </div>`
      : ""}
  </section>`;
}

function Overview({ run }) {
  const facts = [
    ["owner", run.owner],
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
  const names = Object.keys(found.series);
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
  return html`<div class="charts">
    ${ordered(metrics.keys())
      .slice(0, MOST_CHARTS)
      .map((name) => html`<${Curve} key=${name} name=${name} values=${metrics.get(name)} axis=${history.axis} />`)}
  </div>`;
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

function Evaluations({ workspace, run }) {
  if (!run.evaluations.length) return html`<p class="empty">Nothing of this run was evaluated.</p>`;
  return html`<div>${run.evaluations.map((each) => html`<${Evaluation} key=${each.digest} workspace=${workspace} run=${run} each=${each} />`)}</div>`;
}

function Evaluation({ workspace, run, each }) {
  return html`<section>
      <h2>Export ${each.digest}</h2>
      ${each.problem
        ? html`<${Notice} kind="warning">${each.problem}<//>`
        : html`<${Table}
              name="Figures before and after training"
              columns=${["Figure", "Before", "After"]}
              rows=${[
                ...[...new Set([...Object.keys(each.before), ...Object.keys(each.after)])].map((name) => [
                  name,
                  valueText(ownValue(each.before, name)),
                  valueText(ownValue(each.after, name)),
                ]),
                ...(each.samples.some(Boolean) ? [["samples", ...each.samples]] : []),
              ]}
              empty="It has no figures."
            />
            <p class="muted">
              The loss is the ${each.of}${each.rows !== null ? `, of ${counted(each.rows, "row")}` : ""}.
              ${" "}<a href=${`${runLink(workspace, run.name)}?${new URLSearchParams({ tab: "files", file: each.summary })}`}>Summary</a>
            </p>
            <${Sample} sample=${each.sample} />`}
    </section>`;
}

function Sample({ sample }) {
  if (!sample || typeof sample !== "object") return null;
  const parts = ["prompt", "expected", "before", "after"].filter((name) => typeof sample[name] === "string");
  return html`<div class="columns">
    ${parts.map((name) => html`<div key=${name}><h3>${name}</h3><pre class="code wrap" tabindex="0" role="group" aria-label=${name}>${sample[name]}</pre></div>`)}
  </div>`;
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

