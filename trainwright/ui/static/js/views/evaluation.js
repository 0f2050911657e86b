// One evaluation of a run: its figures before and after training, with what they are of, and the text of the sample.
import { html } from "../dom.js";
import { counted, figure } from "../format.js";
import { ownValue } from "../own_value.js";
import { Notice, Table } from "../widgets.js";
import { runLink, valueText } from "./model_parts.js";

/** `each` is an evaluation of the run in the folder `run`. */
export function Evaluation({ workspace, run, each }) {
  return html`<section>
    <h2>Evaluation of export <code>${each.digest}</code></h2>
    ${each.problem
      ? html`<${Notice} kind="warning">${each.problem}<//>`
      : html`<${Table} name="Figures before and after training" columns=${["Figure", "Before", "After", "Change"]} rows=${rowsOf(each)} empty="It has no figures." />
          <p class="muted">
            ${each.rows !== null ? `Of ${counted(each.rows, "row")}. ` : ""}
            <a href=${`${runLink(workspace, run)}?${new URLSearchParams({ tab: "files", file: each.summary })}`}>Summary</a>
          </p>
          <${Sample} sample=${each.sample} />`}
  </section>`;
}

/** The loss has the name of what it is of, with the mark of rows that are also trained on. */
function rowsOf({ before, after, loss, of, samples }) {
  const names = new Set([loss.name, ...Object.keys(before), ...Object.keys(after)]);
  const text = (values, name) => (ownValue(values, name) === undefined ? "" : valueText(ownValue(values, name)));
  const rows = [...names].map((name) => {
    const isLoss = name === loss.name;
    return [isLoss ? of : name, text(before, name), text(after, name), isLoss ? change(loss) : ""];
  });
  return samples.some(Boolean) ? [...rows, ["samples", ...samples, ""]] : rows;
}

function change({ before, after }) {
  if (before === null || after === null || before === 0) return "";
  const percent = ((after - before) / before) * 100;
  return `${percent > 0 ? "+" : ""}${figure(percent, 3)} %`;
}

function Sample({ sample }) {
  if (!sample || typeof sample !== "object") return null;
  const parts = ["prompt", "expected", "before", "after"].filter((name) => typeof sample[name] === "string");
  return html`<div class="columns sample">
    ${parts.map((name) => html`<div key=${name}><h3>Sample: ${name}</h3><pre class="code wrap" tabindex="0" role="group" aria-label=${name}>${sample[name]}</pre></div>`)}
  </div>`;
}
