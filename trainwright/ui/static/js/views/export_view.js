// One export: its facts and lineage, what names and protects it, its card, its files, and the buttons that promote it.
import { PromoteButton } from "../actions.js";
import { getJson, query } from "../api.js";
import { html } from "../dom.js";
import { bytes, counted, figure } from "../format.js";
import { Markdown } from "../markdown.js";
import { to } from "../route.js";
import { Copyable, Facts, Notice, Phase, Table, Time, useLoaded } from "../widgets.js";
import { CreatorLink } from "./creator_link.js";
import { Digest, Loading, Prepared, Problems, ShowMore, Values, diffLink, exportLink, folderLink, usePages, valueText } from "./model_parts.js";

/** `uri` is that of an export. */
export function ExportView({ uri }) {
  const loaded = useLoaded((signal) => getJson(`export${query({ uri })}`, { signal }), [uri]);
  const found = loaded.value;
  return html`<section>
    <${Path} found=${found} />
    <div class="heading">
      <h1>${found ? `${found.run ? `${found.run}, ` : ""}step ${figure(found.step)}` : "Export"}</h1>
      ${found ? found.aliases.map((name) => html`<span key=${name} class="phase phase-succeeded">${name}</span>`) : ""}
    </div>
    <p><${Copyable} text=${uri} name="the URI" /></p>
    <${Loading} loaded=${loaded} name="the export" />
    ${found
      ? html`<div>
          <${Promotion} found=${found} uri=${uri} onChange=${loaded.reload} />
          <${Export} found=${found} uri=${uri} />
        </div>`
      : ""}
  </section>`;
}

function Path({ found }) {
  return html`<p class="crumbs">
    ${found?.root ? html`<a href=${folderLink(found.root)}>All models</a> · ` : ""}
    ${found?.folder ? html`<a href=${folderLink(found.folder)}>Exports of the run</a>` : ""}
  </p>`;
}

function Export({ found, uri }) {
  return html`<div>
    <${Problems} problems=${[found.problem]} />
    ${found.supersededBy.map((other) => html`<${Notice} key=${other.uri}>Superseded by <a href=${exportLink(other.uri)}>${other.name}</a>.<//>`)}
    <${Facts}
      facts=${[
        ["published", html`<${Time} at=${found.created} />`],
        ["size", `${bytes(found.bytes)}, ${counted(found.files, "file")}`],
        ["format", found.format],
        ["training can resume from it", found.resumable ? "yes" : "no: weights only"],
        ["TrainJob", html`<${Job} found=${found} />`],
        ["made by", found.job?.creator.name ? html`<${CreatorLink} creator=${found.job.creator} />` : found.owner],
        ["digest", html`<${Copyable} text=${found.digest} name="the digest" />`],
        ["supersedes", found.supersedes && html`<${Digest} digest=${found.supersedes} />`],
        ["protected by", found.protectedBy.join(", ")],
        ["registered in", found.registered.join(", ")],
        ["upload", found.confirmed === "checked" ? "checked by the store" : "read back"],
      ]}
    />
    <h2>Metrics</h2>
    <${Values} values=${found.metrics} empty="Training logged no metrics at this step." />
    <h2>Lineage</h2>
    <div class="columns">
      <${Prepared} kind="dataset" prepared=${found.prepared.dataset} digest=${found.origin.dataset} />
      <${Prepared} kind="model" prepared=${found.prepared.model} digest=${found.origin.model} />
    </div>
    ${Array.isArray(found.starts) && found.starts.length
      ? html`<h3>Its jobs began with</h3><ol>${found.starts.map((text, number) => html`<li key=${number}>${valueText(text)}</li>`)}</ol>`
      : ""}
    ${found.usage ? html`<h3>Used</h3><${Values} values=${found.usage} />` : ""}
    ${Object.keys(found.metadata || {}).length ? html`<h3>Also recorded</h3><${Values} values=${found.metadata} />` : ""}
    <h2>Model card</h2>
    <${Card} uri=${uri} />
    <h2>Files</h2>
    <${Files} uri=${uri} />
  </div>`;
}

function Job({ found }) {
  if (!found.trainjob) return null;
  if (!found.job) return html`<span>${found.trainjob} <span class="muted">(not found in the cluster)</span></span>`;
  return html`<span><a href=${to("jobs", found.job.namespace, found.job.name)}>${found.job.name}</a> <${Phase} phase=${found.job.phase} /></span>`;
}

/** Promotions, against what the aliases named when this was read; absent where this server may not promote. */
function Promotion({ found, uri, onChange }) {
  if (!found.mayPromote) return null;
  const champion = found.named.find((each) => each.name === "champion")?.current;
  return html`<div class="actions" role="group" aria-label="Promote">
    ${found.named.map((each) => html`<${PromoteButton} key=${each.name} target=${{ uri, digest: found.digest }} shown=${each} onDone=${onChange} />`)}
    ${champion && champion.digest !== found.digest ? html`<a class="button" href=${diffLink(champion.uri, uri)}>Compare with champion</a>` : ""}
  </div>`;
}

function Card({ uri }) {
  const loaded = useLoaded((signal) => getJson(`export/card${query({ uri })}`, { signal }), [uri]);
  const found = loaded.value;
  if (!found) return html`<${Loading} loaded=${loaded} name="the card" />`;
  return html`<div>
    <${Problems} problems=${[found.problem, found.readmeProblem]} />
    ${found.card ? html`<div class="panel"><${Markdown} text=${found.card} /></div>` : ""}
    ${found.readme
      ? html`<details><summary>README.md of the checkpoint</summary><div class="panel"><${Markdown} text=${found.readme} /></div></details>`
      : ""}
  </div>`;
}

function Files({ uri }) {
  const { loaded, pages, more } = usePages((before, signal) => getJson(`export/files${query({ uri, offset: endOf(before) })}`, { signal }), [uri]);
  if (!loaded.value) return html`<${Loading} loaded=${loaded} name="the files" />`;
  const files = pages.flatMap((page) => page.files);
  const total = loaded.value.total;
  return html`<div>
    <${Table}
      name="Files of the export"
      columns=${["Path", "Size", "SHA-256", "Stored as"]}
      keys=${files.map((file) => file.path)}
      rows=${files.map((file) => [file.path, bytes(file.bytes), html`<${Digest} digest=${file.sha256} />`, html`<code>${file.key}</code>`])}
      empty=""
    />
    <${ShowMore} more=${more} is=${files.length < total}>Show more of ${counted(total, "file")}<//>
  </div>`;
}

function endOf(page) {
  return page ? page.offset + page.files.length : "";
}
