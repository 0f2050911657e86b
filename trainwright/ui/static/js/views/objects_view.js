// The objects of a job: as they are built, with who contributed each line, and beside them as the cluster has them now.
import { getJson, path, query } from "../api.js";
import { html, useEffect, useMemo, useState } from "../dom.js";
import { counted } from "../format.js";
import { useLineWindow } from "../line_window.js";
import { setValues, useRoute } from "../route.js";
import { Button, Notice, Problem, useLoaded } from "../widgets.js";
import { annotatedLines, linesOf, plainLines } from "../yaml_lines.js";

const LINE_HEIGHT = 20;
const COLOURS = 8;
const FIXED = ["runtime", "job", "default"];
const SOURCES = {
  snapshot: "its snapshot, taken when the job was built",
  cluster: "the cluster, as it is now",
  bundled: "the bundled catalogue",
};

export function ObjectsView({ namespace, name }) {
  const { values } = useRoute();
  const load = (signal) => getJson(`trainjobs/${path(namespace, name)}/objects`, { signal });
  const { value, problem, loading, reload } = useLoaded(load, [namespace, name]);
  const [kept, setKept] = useState(null);
  useEffect(() => value && setKept(value), [value]);
  if (!kept) return problem ? html`<${Problem} problem=${problem} />` : html`<p class="loading">Building the objects …</p>`;
  const built = kept.built.find((each) => idOf(each) === values.get("object")) || kept.built.at(-1);
  const live = kept.live.find((each) => idOf(each) === (values.get("live") || (built && idOf(built)))) || kept.live[0];
  return html`<section class="objects-view" aria-label="Objects">
    <${Problem} problem=${problem} />
    <${Source} runtime=${kept.runtime} problem=${kept.problem} />
    ${kept.denied.map((each) => html`<${Notice} key=${each.kind} kind="warning">${each.kind} cannot be read: ${each.message}<//>`)}
    <div class="object-panes">
      ${built ? html`<${BuiltPane} objects=${kept.built} built=${built} />` : ""}
      <${LivePane} job=${path(namespace, name)} objects=${kept.live} live=${live} onReload=${reload} busy=${loading} />
    </div>
  </section>`;
}

function Source({ runtime, problem }) {
  const failed = problem ? html`<${Notice} kind="error">The objects cannot be built from the job: ${problem.message}<//>` : "";
  if (!runtime) return failed;
  const note = runtime.note ? ` (${capital(runtime.note)}.)` : "";
  return html`${failed}
    <p class="muted">Built from the ${runtime.kind} <b>${runtime.name}</b> of ${SOURCES[runtime.source]}.${note}</p>`;
}

function BuiltPane({ objects, built }) {
  const lines = useMemo(() => annotatedLines(built.yaml), [built]);
  const contributors = built.yaml.contributors.filter(Boolean);
  const [chosen, setChosen] = useState([]);
  const wanted = chosen.filter((each) => contributors.includes(each));
  const shown = useMemo(() => linesOf(lines, wanted), [lines, wanted.join("\n")]);
  const toggle = (each) => setChosen(chosen.includes(each) ? chosen.filter((other) => other !== each) : [...chosen, each]);
  return html`<section class="object-pane" aria-label="As built">
    <div class="filters">
      <label class="field grow">
        As built
        <select value=${idOf(built)} onChange=${(event) => setValues({ object: event.target.value, live: "" })}>
          ${objects.map((each) => html`<option key=${idOf(each)} value=${idOf(each)}>${each.kind} ${each.name}</option>`)}
        </select>
      </label>
    </div>
    <div class="chips" role="group" aria-label="Show only lines of">
      ${contributors.map(
        (each) =>
          html`<button
            type="button"
            key=${each}
            class=${`chip origin ${colourOf(each, contributors)}`}
            aria-pressed=${wanted.includes(each)}
            onClick=${() => toggle(each)}
          >
            ${each} <span class="chip-count">${lines.filter((line) => line.by === each).length}</span>
          </button>`,
      )}
      ${wanted.length ? html`<${Button} kind="small" onClick=${() => setChosen([])}>Show all<//>` : ""}
    </div>
    <${YamlBox} lines=${shown} contributors=${contributors} name=${`${built.kind} ${built.name} as built`} />
  </section>`;
}

function LivePane({ job, objects, live, onReload, busy }) {
  const load = (signal) => getJson(`trainjobs/${job}/object${query({ type: live.type, object: live.name })}`, { signal });
  const nothing = () => Promise.resolve(null);
  const { value, problem, reload } = useLoaded(live ? load : nothing, [job, live ? `${idOf(live)} ${live.uid}` : ""]);
  const lines = useMemo(() => plainLines(value?.text || ""), [value]);
  const again = () => {
    onReload();
    reload();
  };
  return html`<section class="object-pane" aria-label="In the cluster now">
    <div class="filters">
      <label class="field grow">
        In the cluster now
        <select value=${live ? idOf(live) : ""} onChange=${(event) => setValues({ live: event.target.value })}>
          ${objects.map((each) => html`<option key=${idOf(each)} value=${idOf(each)}>${textOf(each)}</option>`)}
        </select>
      </label>
      <${Button} onClick=${again} why=${busy ? "being read" : ""}>Read again<//>
    </div>
    <${Problem} problem=${problem} />
    ${live
      ? html`<${YamlBox} lines=${lines} contributors=${[]} name=${`${live.kind} ${live.name} in the cluster`} />`
      : html`<${Notice}>The cluster has no objects of this job.<//>`}
  </section>`;
}

function YamlBox({ lines, contributors, name }) {
  const view = useLineWindow(lines.length, LINE_HEIGHT);
  const widest = Math.max(3, ...contributors.map((each) => Math.min(each.length, 16)));
  const label = `${name}, ${counted(lines.length, "line")}`;
  return html`<div class="yaml-box" ref=${view.box} tabindex="0" role="region" aria-label=${label}>
    <div class="log-canvas" style=${{ height: `${Math.max(1, view.canvas)}px` }}>
      <div class="log-lines" style=${{ transform: `translateY(${view.offset}px)` }}>
        ${lines.slice(view.first, view.last).map((line, place) => {
          const before = place ? lines[view.first + place - 1] : null;
          const isFirst = !before || before.by !== line.by;
          const width = `${widest + 2}ch`;
          return html`<div key=${line.number} class=${`yaml-line ${line.isContext ? "is-context" : ""}`}>
            ${contributors.length
              ? html`<span class=${`yaml-origin origin ${colourOf(line.by, contributors)}`} style=${{ width }} title=${line.by}>
                  ${line.by ? html`<span class=${isFirst ? "" : "for-readers"}>${line.by}</span>` : ""}
                </span>`
              : ""}
            <span class="log-number" style=${{ minWidth: `${String(lines.length).length}ch` }}>${line.number + 1}</span>
            <span class="yaml-text">${line.text}</span>
          </div>`;
        })}
      </div>
    </div>
  </div>`;
}

function textOf(object) {
  return `${object.kind} ${object.name}${object.status ? ` · ${object.status}` : ""}`;
}

function idOf(object) {
  return `${object.type}/${object.name}`;
}

/** A class for a contributor: fixed ones for those that every object has. */
function colourOf(contributor, contributors) {
  if (!contributor) return "origin-none";
  if (FIXED.includes(contributor)) return `origin-${contributor}`;
  return `origin-${contributors.filter((each) => !FIXED.includes(each)).indexOf(contributor) % COLOURS}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
