// Folders of exports: runs and aliases in the folder of all, with the history of each alias, and the exports of a run.
import { getJson, query } from "../api.js";
import { html, useEffect, useState } from "../dom.js";
import { bytes, counted, figure } from "../format.js";
import { RollBackButton } from "../actions.js";
import { ownValue } from "../own_value.js";
import { setValues, to } from "../route.js";
import { Button, Notice, Table, Time, useLoaded } from "../widgets.js";
import { DiffView } from "./diff_view.js";
import { ExportView } from "./export_view.js";
import { Digest, Loading, Loss, Metrics, Problems, ShowMore, diffLink, exportLink, folderLink, usePages } from "./model_parts.js";

/** `parts` are those of the address after `models`: nothing, `export` or `diff`. */
export function ModelsView({ cluster, parts, values }) {
  if (parts[0] === "export") return html`<${ExportView} key=${values.get("uri")} uri=${values.get("uri") || ""} cluster=${cluster} />`;
  if (parts[0] === "diff") return html`<${DiffView} one=${values.get("one") || ""} other=${values.get("other") || ""} />`;
  const uri = values.get("uri") || "";
  return html`<section>
    <h1>Models</h1>
    <${AddressField} key=${`field ${uri}`} uri=${uri} />
    ${uri ? html`<${Folder} key=${`folder ${uri}`} uri=${uri} />` : html`<${Sources} cluster=${cluster} />`}
  </section>`;
}

function AddressField({ uri }) {
  const [text, setText] = useState(uri);
  const open = (event) => {
    event.preventDefault();
    setValues({ uri: text.trim() });
  };
  return html`<form class="filters" onSubmit=${open}>
    <label class="field grow"
      >Folder of exports
      <input name="uri" value=${text} placeholder="s3://bucket/exports" spellcheck="false" onInput=${(event) => setText(event.target.value)} />
    </label>
    <button type="submit" class="button">Open</button>
    ${uri ? html`<a class="button" href=${to("models")}>All folders</a>` : ""}
  </form>`;
}

function Sources({ cluster }) {
  const loaded = useLoaded((signal) => getJson(`export-folders${query({ namespace: cluster.namespaces ? "" : cluster.namespace })}`, { signal }), []);
  const found = loaded.value;
  if (!found) return html`<${Loading} loaded=${loaded} name="the folders of exports" />`;
  const isShown = (each) => each.origin === "given" || (each.origin === "run" && each.uri.startsWith("file://"));
  const shown = found.sources.filter(isShown);
  const others = found.sources.filter((each) => !isShown(each));
  return html`<div>
    <${Problems} problems=${found.problems} />
    ${found.sources.length
      ? ""
      : html`<${Notice}>No folder of exports is known. Enter its URI, or start the page with <code>--exports URI</code>.<//>`}
    ${shown.map((each) => html`<section key=${each.uri}><h2><a href=${folderLink(each.uri)}>${each.uri}</a></h2><${Folder} uri=${each.uri} /></section>`)}
    ${others.length
      ? html`<h2>Named by jobs and runs</h2>
          <${Table}
            name="Folders of exports that jobs and runs name"
            columns=${["Folder", "Named by"]}
            keys=${others.map((each) => each.uri)}
            rows=${others.map((each) => [html`<a href=${folderLink(each.uri)}>${each.uri}</a>`, `${each.origin === "job" ? "TrainJob" : "run"} ${each.of}`])}
            empty=""
          />`
      : ""}
  </div>`;
}

/** A folder of exports, whatever is in it. Pages after the first are added to it. */
function Folder({ uri }) {
  const { loaded, pages, more } = usePages((before, signal) => getJson(`exports${query({ uri, after: before?.next })}`, { signal }), [uri]);
  const first = loaded.value;
  if (!first) return html`<${Loading} loaded=${loaded} name=${uri} />`;
  if (first.kind === "export") return html`<p>This is an export: <a href=${exportLink(first.uri)}>${first.uri}</a></p>`;
  const part = first.kind === "run" ? "export" : "run";
  const rows = pages.flatMap((page) => (part === "export" ? page.exports : page.runs));
  return html`<div>
    ${first.kind === "root" ? html`<${Aliases} root=${first.uri} aliases=${first.aliases} onChange=${loaded.reload} />` : ""}
    <p class="count" role="status">
      ${rows.length === first.total ? counted(rows.length, part) : `${rows.length} of ${counted(first.total, part)}`}${first.cut ? " (more are not read)" : ""}
    </p>
    <${Problems} problems=${[first.problem]} />
    ${part === "export" ? html`<${Exports} rows=${rows} />` : html`<${Runs} rows=${rows} />`}
    <${ShowMore} more=${more} is=${pages.at(-1).next}>Show more ${part}s<//>
  </div>`;
}

function Runs({ rows }) {
  return html`<${Table}
    name="Runs with exports"
    columns=${["Run", "Loss", "Metrics", "Latest export", "Step", "Published", "Best"]}
    keys=${rows.map((row) => row.name)}
    rows=${rows.map((row) => [
      html`<a href=${folderLink(row.uri)}>${row.name}</a>${row.problem ? html`<span class="second">${row.problem}</span>` : ""}`,
      row.evaluation ? html`<${Loss} loss=${row.evaluation} of=${row.evaluation.of} />` : "",
      html`<${Metrics} metrics=${row.metrics} few=${2} />`,
      row.latest?.checkpoint ? html`<a href=${exportLink(`${row.uri}/${row.latest.checkpoint}`)}>${row.latest.checkpoint}</a>` : "",
      row.latest ? figure(row.latest.step) : "",
      row.latest?.created ? html`<${Time} at=${row.latest.created} />` : "",
      row.best?.metric ? `${row.best.metric} ${figure(row.best.value)} (${row.best.checkpoint})` : "",
    ])}
    empty="There are no exports in this folder."
  />`;
}

function Exports({ rows }) {
  const [chosen, setChosen] = useState([]);
  const toggle = (uri) => setChosen(chosen.includes(uri) ? chosen.filter((each) => each !== uri) : [...chosen, uri].slice(-2));
  const ordered = rows.filter((row) => chosen.includes(row.uri)).map((row) => row.uri).reverse();
  return html`<div>
    <div class="actions">
      <${Button}
        why=${chosen.length === 2 ? "" : "choose two exports"}
        onClick=${() => location.assign(diffLink(ordered[0], ordered[1]))}
        >Compare<//
      >
    </div>
    <${Table}
      name="Exports of the run"
      columns=${["Compare", "Export", "Loss", "Metrics", "Step", "Published", "Size", "Kept as"]}
      keys=${rows.map((row) => row.name)}
      rows=${rows.map((row) => exportCells(row, chosen.includes(row.uri), () => toggle(row.uri)))}
      empty="There are no exports in this folder."
    />
  </div>`;
}

function exportCells(row, isChosen, onToggle) {
  const name = html`<a href=${exportLink(row.uri)}>${row.name}</a>`;
  if (row.problem) return ["", name, "", html`<span class="muted">${row.problem}</span>`, "", "", "", ""];
  return [
    html`<input type="checkbox" checked=${isChosen} onChange=${onToggle} aria-label=${`Compare ${row.name}`} />`,
    name,
    row.evaluation ? html`<${Loss} loss=${row.evaluation} of=${row.evaluation.of} />` : "",
    html`<${Metrics} metrics=${row.metrics} />`,
    figure(row.step),
    html`<${Time} at=${row.created} />`,
    bytes(row.bytes),
    html`<${Kept} row=${row} />`,
  ];
}

/** What names and protects an export. */
export function Kept({ row }) {
  const names = [...new Set([...row.aliases, ...row.protectedBy])];
  return html`<span class="metrics">
    ${names.map((name) => html`<span key=${name} class=${row.aliases.includes(name) ? "phase phase-succeeded" : "metric"}>${name}</span>`)}
    ${row.resumable ? "" : html`<span class="metric">weights only</span>`}
  </span>`;
}

function Aliases({ root, aliases, onChange }) {
  const [changed, setChanged] = useState({});
  useEffect(() => setChanged({}), [aliases]);
  const done = (result) => {
    setChanged({ ...changed, [result.alias.name]: result.alias });
    onChange();
  };
  return html`<div>
    ${aliases.map((each) => html`<${Alias} key=${each.name} root=${root} alias=${ownValue(changed, each.name) || each} onChange=${done} />`)}
  </div>`;
}

function Alias({ root, alias, onChange }) {
  const { name, current } = alias;
  if (alias.problem) return html`<section><h3>${name}</h3><${Notice} kind="warning">${alias.problem}<//></section>`;
  if (!current) return name === "champion" ? html`<p class="empty">No export is the ${name} yet.</p>` : null;
  const entries = [current, ...alias.history];
  return html`<section aria-label=${name} class="alias">
    <div class="heading"><h3>${name}</h3><${RollBackButton} root=${root} shown=${alias} onDone=${onChange} /></div>
    <${Table}
      name=${`History of ${name}`}
      columns=${["When", "Export", "Step", "Promoted", "Evaluation", "Reason", "Digest"]}
      rows=${entries.map((entry, number) => [
        number ? "before" : html`<span class="phase phase-succeeded">now</span>`,
        html`<a href=${exportLink(entry.uri)}>${entry.uri.split("/").slice(-2).join("/")}</a>
          ${number ? html`<a class="second" href=${diffLink(entry.uri, current.uri)}>compare with now</a>` : ""}`,
        figure(entry.step),
        html`<${Time} at=${entry.promoted} />`,
        html`<${Metrics} metrics=${entry.evaluation} />`,
        entry.reason,
        html`<${Digest} digest=${entry.digest} />`,
      ])}
      empty=""
    />
    ${alias.more ? html`<p class="muted">${alias.more} older ones are not shown.</p>` : ""}
  </section>`;
}
