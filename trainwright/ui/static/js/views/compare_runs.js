// The metrics of several runs side by side. A metric that a run lacks is an empty cell.
import { getJson, query } from "../api.js";
import { comparison } from "../comparison.js";
import { html } from "../dom.js";
import { to } from "../route.js";
import { Notice, Problem, Table, useLoaded } from "../widgets.js";
import { Loading, runLink, runTitle } from "./model_parts.js";

export const MOST_RUNS = 8;
const MOST_TRAININGS = 5;

/** @returns {string} the address of the comparison of runs, each WORKSPACE/NAME. */
export function compareLink(keys) {
  return `${to("runs", "compare")}?${new URLSearchParams(keys.map((key) => ["run", key]))}`;
}

/** `keys` are those of the address. A run that cannot be read does not hide the others. */
export function CompareRuns({ keys, namespace }) {
  const chosen = [...new Set(keys)].slice(0, MOST_RUNS);
  const loaded = useLoaded((signal) => Promise.all(chosen.map((key) => readRun(key, namespace, signal))), [chosen.join("\n"), namespace]);
  return html`<section>
    <p class="crumbs"><a href=${to("runs")}>All runs</a></p>
    <h1>Runs compared</h1>
    ${loaded.value ? html`<${Compared} runs=${loaded.value} />` : html`<${Loading} loaded=${loaded} name="the runs" />`}
  </section>`;
}

function Compared({ runs }) {
  const read = runs.filter((run) => run.page);
  const { notes, rows } = comparison(read);
  const titles = titlesOf(read);
  return html`<div>
    ${runs.filter((run) => run.problem).map((run) => html`<${Problem} key=${run.key} problem=${run.problem} />`)}
    <ul class="plain-list">
      ${read.map((run, at) => html`<li key=${run.key}><a href=${runLink(run.workspace, run.page.name)}>${titles[at]}</a>: ${run.page.problem || run.page.state}</li>`)}
    </ul>
    ${notes.map((note) => html`<${Notice} key=${note} kind="warning">${note}<//>`)}
    <${Table} name="Metrics of the runs" columns=${["Metric", ...titles]} keys=${rows.map(([name]) => name)} rows=${rows} empty="These runs have no metrics." />
  </div>`;
}

/** Runs of one title are distinguished by their folders. */
function titlesOf(runs) {
  const titles = runs.map((run) => runTitle(run.page));
  return titles.map((title, at) => (titles.indexOf(title) === titles.lastIndexOf(title) ? title : `${title} (${runs[at].key})`));
}

async function readRun(key, namespace, signal) {
  const at = key.lastIndexOf("/");
  const [workspace, run] = [key.slice(0, at), key.slice(at + 1)];
  try {
    const page = await getJson(`run${query({ workspace, run, namespace })}`, { signal });
    const read = ({ folder }) => getJson(`history${query({ workspace, folder })}`, { signal });
    const trainings = page.trainings.slice(0, MOST_TRAININGS);
    const histories = await Promise.all(trainings.map(read));
    return { key, workspace, page, trainings: trainings.map(({ name }, number) => ({ name, series: histories[number].series })) };
  } catch (problem) {
    if (signal.aborted || !(problem.code >= 400 && problem.code < 500 && problem.code !== 401)) throw problem; // asked again
    return { key, problem };
  }
}
