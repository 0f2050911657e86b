// Where Airflow and Kubeflow Pipelines are, so that jobs link to the runs that have made them. Remembered in this browser.
import { html, useState } from "../dom.js";
import { Button, Dialog } from "../widgets.js";
import { keepOrchestrators, orchestrators } from "./creator_link.js";

const FIELDS = [
  ["airflow", "Airflow", "https://airflow.example.com"],
  ["kfp", "Kubeflow Pipelines", "https://kubeflow.example.com/pipeline"],
];

/** Asks for the addresses. */
export function LinksDialog({ onClose }) {
  const [addresses, setAddresses] = useState(orchestrators());
  const wrong = FIELDS.filter(([id]) => addresses[id] && !/^https?:\/\/\S+$/i.test(addresses[id]));
  const save = () => {
    keepOrchestrators(addresses);
    onClose();
  };
  return html`<${Dialog} title="Links to orchestrators" onClose=${onClose}>
    <p class="muted">Jobs link to their DAG runs and pipeline runs below these addresses.</p>
    ${FIELDS.map(
      ([id, title, example]) =>
        html`<label key=${id} class="field"
          >${title}
          <input name=${id} type="url" value=${addresses[id]} placeholder=${example} onInput=${(event) => setAddresses({ ...addresses, [id]: event.target.value.trim() })} />
        </label>`,
    )}
    <div class="dialog-buttons">
      <${Button} onClick=${onClose}>Cancel<//>
      <${Button} kind="primary" onClick=${save} why=${wrong.length ? `${wrong[0][1]}: an address begins with https:// or http://` : ""}>Save<//>
    </div>
  <//>`;
}
