// Two exports side by side: data, settings, metrics and files that differ.
import { getJson, query } from "../api.js";
import { html } from "../dom.js";
import { bytes, counted, figure } from "../format.js";
import { Notice, Table, useLoaded } from "../widgets.js";
import { Digest, Loading, Problems, diffLink, exportLink, folderLink, valueText } from "./model_parts.js";

const KINDS = ["changed", "added", "removed"];

/** `one` and `other` are the URIs of exports. */
export function DiffView({ one, other }) {
  const loaded = useLoaded((signal) => getJson(`export/diff${query({ one, other })}`, { signal }), [one, other]);
  const found = loaded.value;
  return html`<section>
    <p class="crumbs"><a href=${folderLink(one.split("/").slice(0, -1).join("/"))}>Exports of the run</a></p>
    <h1>Two exports compared</h1>
    <${Loading} loaded=${loaded} name="both exports" />
    ${found ? html`<${Difference} found=${found} one=${one} other=${other} />` : ""}
  </section>`;
}

function Difference({ found, one, other }) {
  const [first, second] = found.exports;
  return html`<div>
    <${Problems} problems=${found.problems} />
    ${found.isSame ? html`<${Notice}>Both are the same export.<//>` : ""}
    <${Table}
      name="The exports"
      columns=${["Fact", "From", "To"]}
      rows=${[
        ["Export", html`<a href=${exportLink(one)}>${first.name}</a>`, html`<a href=${exportLink(other)}>${second.name}</a>`],
        ["Run", first.source, second.source],
        ["Step", figure(first.step), figure(second.step)],
        ["Published", first.created, second.created],
        ["Size", bytes(first.bytes), bytes(second.bytes)],
        ["Dataset", html`<${Digest} digest=${found.origins[0].dataset} />`, html`<${Digest} digest=${found.origins[1].dataset} />`],
        ["Base model", html`<${Digest} digest=${found.origins[0].model} />`, html`<${Digest} digest=${found.origins[1].model} />`],
        ["Digest", html`<${Digest} digest=${first.digest} />`, html`<${Digest} digest=${second.digest} />`],
      ]}
      empty=""
    />
    <p><a class="button" href=${diffLink(other, one)}>Swap</a></p>
    <h2>Data</h2>
    <${Pairs} name="Data" pairs=${found.data} same="Both were trained on the same data, from the same base model." />
    <h2>Metrics</h2>
    <${Table}
      name="Metrics"
      columns=${["Metric", "From", "To", "Change"]}
      rows=${Object.entries(found.metrics).map(([name, [was, is]]) => [name, valueText(was), valueText(is), change(was, is)])}
      empty="Neither has metrics."
    />
    <h2>Settings</h2>
    <${Pairs} name="Settings" pairs=${{ ...found.settings, ...found.recorded }} same="No recorded setting differs." />
    <h2>Files</h2>
    <p>${KINDS.map((kind) => `${found.counts[kind]} ${kind}`).join(", ")}, ${found.counts.unchanged} unchanged.</p>
    ${KINDS.filter((kind) => found.files[kind].length).map(
      (kind) => html`<details key=${kind} open=${found.files[kind].length <= 20}>
        <summary>${counted(found.counts[kind], "file")} ${kind}</summary>
        <ul class="paths">${found.files[kind].map((path) => html`<li key=${path}><code>${path}</code></li>`)}</ul>
        ${found.counts[kind] > found.files[kind].length ? html`<p class="muted">The rest is not shown.</p>` : ""}
      </details>`,
    )}
  </div>`;
}

function Pairs({ name, pairs, same }) {
  return html`<${Table}
    name=${name}
    columns=${["Name", "From", "To"]}
    rows=${Object.entries(pairs).map(([field, pair]) => [field, valueText(pair?.[0]), valueText(pair?.[1])])}
    empty=${same}
  />`;
}

/** @returns {string} the difference of two figures, and what share of the first it is. */
function change(was, is) {
  if (typeof was !== "number" || typeof is !== "number") return "";
  const share = was ? ` (${is >= was ? "+" : "−"}${Math.abs(((is - was) / was) * 100).toFixed(1)} %)` : "";
  return `${is > was ? "+" : is < was ? "−" : "±"}${figure(Math.abs(is - was))}${share}`;
}
