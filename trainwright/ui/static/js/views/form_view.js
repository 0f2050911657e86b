// The form: the twenty parameters of pipeline and DAG, checked as they are typed. Starts a fine-tuning, or writes it as text.
import { getJson, postJson, saveBlob } from "../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../dom.js";
import { to } from "../route.js";
import { Button, Confirmation, Notice, Problem, useLoaded } from "../widgets.js";
import { LaunchView, LaunchesList } from "./launch_view.js";

const CHECK_MS = 300;
const FORMS = [
  ["yaml", "YAML"],
  ["kfp", "KFP code"],
  ["airflow", "Airflow DAG"],
];

/** `parts` of the address: new, and the id of a started run. */
export function FormView({ parts }) {
  if (parts[1]) return html`<${LaunchView} run=${parts[1]} />`;
  return html`<${NewRun} />`;
}

function NewRun() {
  const { value: form, problem, reload } = useLoaded((signal) => getJson("form", { signal }), []);
  return html`<section aria-labelledby="form-title">
    <h1 id="form-title">New fine-tuning</h1>
    <${Problem} problem=${problem} />
    ${problem ? html`<${Button} onClick=${reload}>Try again<//>` : ""}
    ${!form && !problem ? html`<p class="loading">Reading the cluster …</p>` : ""}
    ${form ? html`<${Form} form=${form} />` : ""}
    ${form?.mayLaunch ? html`<h2>Started on this page</h2><${LaunchesList} />` : ""}
  </section>`;
}

function Form({ form }) {
  const [texts, setTexts] = useState(() => Object.fromEntries(form.fields.map((field) => [field.name, textOf(field.initial)])));
  const [touched, setTouched] = useState(new Set());
  const [run, setRun] = useState(form.run);
  const [namespace, setNamespace] = useState(form.namespace);
  const [written, setWritten] = useState(null);
  const [asking, setAsking] = useState(false);
  const { parameters, unreadable } = useMemo(() => parsed(form.fields, texts), [texts]);
  const { problems, problem } = useCheck(parameters, unreadable);
  const shown = (name) => problems.filter((each) => each.field.split(".")[0] === name && (touched.has(name) || each.message !== "required"));
  const others = problems.filter((each) => !form.fields.some((field) => field.name === each.field.split(".")[0]));
  const change = (name, text) => {
    setTexts((before) => ({ ...before, [name]: text }));
    setTouched((before) => new Set(before).add(name));
  };
  const showAll = () => setTouched(new Set(form.fields.map((field) => field.name)));
  const blocked = problems.length ? `${problems.length} ${problems.length === 1 ? "field needs" : "fields need"} attention` : "";
  const write = async (kind) => {
    showAll();
    if (blocked) return;
    setWritten({ kind, text: "", problem: null, busy: true });
    try {
      const answer = await postJson("form/write", { parameters, as: kind, run, namespace });
      setWritten({ kind, text: answer.text, file: answer.file, problem: null, busy: false });
    } catch (error) {
      setWritten({ kind, text: "", problem: error, busy: false });
    }
  };
  return html`<form class="form" onSubmit=${(event) => event.preventDefault()} novalidate>
    ${form.sections
      .map((section) => [section, form.fields.filter((field) => field.section === section)])
      .filter(([, fields]) => fields.length)
      .map(
        ([section, fields]) =>
          html`<fieldset key=${section}>
            <legend>${section}</legend>
            ${fields.map((field) => html`<${Field} key=${field.name} field=${field} text=${texts[field.name]} problems=${shown(field.name)} onChange=${change} />`)}
          </fieldset>`,
      )}
    <fieldset>
      <legend>Name</legend>
      <${TextField} name="run" label="Run id" text=${run} onChange=${setRun} help="With that of an earlier run, trainwright finetune --run-id resumes it." />
      <${TextField} name="namespace" label="Namespace" text=${namespace} onChange=${setNamespace} help="Where the TrainJob is created." />
    </fieldset>
    ${others.map((each) => html`<${Notice} key=${each.message} kind="error">${each.message}<//>`)}
    <${Problem} problem=${problem} />
    <div class="actions" role="group" aria-label="What to do with these settings">
      ${form.mayLaunch ? html`<${Button} kind="primary" why=${blocked} onClick=${() => setAsking(true)} onFocus=${showAll}>Start<//>` : ""}
      ${FORMS.map(([kind, title]) => html`<${Button} key=${kind} why=${blocked} onClick=${() => write(kind)} onFocus=${showAll}>${title}<//>`)}
    </div>
    ${!form.mayLaunch ? html`<p class="muted">This page runs in the cluster: it writes text, and starts nothing.</p>` : ""}
    <${Written} written=${written} />
    ${asking
      ? html`<${Confirmation}
          title="Start this fine-tuning?"
          kind="primary"
          verb="Start"
          consequence=${`Run ${run} prepares data and model, trains in the namespace ${namespace}, exports to ${texts.export_uri}, and evaluates.`}
          action=${() => postJson("launches", { parameters, run, namespace })}
          onDone=${({ launch }) => (location.hash = to("new", launch.run))}
          onClose=${() => setAsking(false)}
        />`
      : ""}
  </form>`;
}

function Field({ field, text, problems, onChange }) {
  const id = `field-${field.name}`;
  const described = `${id}-help${problems.length ? ` ${id}-problem` : ""}`;
  const shared = {
    id,
    name: field.name,
    "aria-describedby": described,
    "aria-invalid": problems.length ? "true" : undefined,
    required: field.required,
    spellcheck: false,
    autocomplete: "off",
  };
  const change = (event) => onChange(field.name, event.target.value);
  return html`<div class="form-field">
    <label for=${id}>${field.name}${field.required ? html` <span aria-hidden="true" class="star">*</span>` : ""}</label>
    ${field.choices.length
      ? html`<select ...${shared} value=${text} onChange=${change}>
          ${field.choices.map((choice) => html`<option key=${choice} value=${choice} selected=${choice === text}>${choice || "default"}</option>`)}
        </select>`
      : field.kind === "object"
        ? html`<textarea ...${shared} rows="2" value=${text} onInput=${change} placeholder=${field.example || "{}"}></textarea>`
        : html`<input
            ...${shared}
            type="text"
            inputmode=${field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : undefined}
            value=${text}
            onInput=${change}
            placeholder=${field.example}
          />`}
    <p id=${`${id}-help`} class="muted help">${field.description}</p>
    <p id=${`${id}-problem`} class="field-problem" role="alert">${problems.map((each) => each.message).join("; ")}</p>
  </div>`;
}

function TextField({ name, label, text, onChange, help }) {
  return html`<div class="form-field">
    <label for=${`field-${name}`}>${label}</label>
    <input id=${`field-${name}`} name=${name} value=${text} spellcheck="false" autocomplete="off" aria-describedby=${`field-${name}-help`} onInput=${(event) => onChange(event.target.value)} />
    <p id=${`field-${name}-help`} class="muted help">${help}</p>
  </div>`;
}

function Written({ written }) {
  const box = useRef(null);
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    setCopied(false);
    if (written?.text) box.current?.focus();
  }, [written?.text]);
  if (!written) return null;
  const copy = async () => {
    await navigator.clipboard.writeText(written.text);
    setCopied(true);
  };
  const download = () => saveBlob(new Blob([written.text], { type: "text/plain" }), written.file);
  return html`<section class="written" aria-label=${FORMS.find(([kind]) => kind === written.kind)[1]}>
    <${Problem} problem=${written.problem} />
    ${written.busy ? html`<p class="loading">Writing …</p>` : ""}
    ${written.text
      ? html`<div class="actions">
            <${Button} kind="small" onClick=${copy}>${copied ? "Copied" : "Copy"}<//>
            <${Button} kind="small" onClick=${download}>Download ${written.file}<//>
          </div>
          <pre ref=${box} tabindex="0" class="code" aria-label="Text">${written.text}</pre>`
      : ""}
  </section>`;
}

/** Has the server check the parameters, a moment after the last change. */
function useCheck(parameters, unreadable) {
  const [state, setState] = useState({ problems: [], problem: null });
  useEffect(() => {
    const control = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const { problems } = await postJson("form/check", { parameters }, { signal: control.signal });
        const known = new Set(unreadable.map((each) => each.field));
        setState({ problems: [...unreadable, ...problems.filter((each) => !known.has(each.field))], problem: null });
      } catch (problem) {
        if (!control.signal.aborted) setState({ problems: unreadable, problem });
      }
    }, CHECK_MS);
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [parameters]);
  return state;
}

/** @returns {{parameters: object, unreadable: {field, message}[]}} the values, and what is no number or JSON. */
export function parsed(fields, texts) {
  const parameters = {};
  const unreadable = [];
  for (const field of fields) {
    const text = (texts[field.name] || "").trim();
    if (!text) continue;
    try {
      parameters[field.name] = valueOf(field.kind, text);
    } catch (error) {
      unreadable.push({ field: field.name, message: error.message });
    }
  }
  return { parameters, unreadable };
}

function valueOf(kind, text) {
  if (kind === "integer") {
    if (!/^[+-]?\d+$/.test(text)) throw new Error("expected a whole number");
    return Number(text);
  }
  if (kind === "number") {
    const number = Number(text);
    if (!Number.isFinite(number)) throw new Error("expected a number");
    return number;
  }
  if (kind !== "object") return text;
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`expected a JSON object: ${error.message}`, { cause: error });
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("expected a JSON object, as {\"name\": 1}");
  return value;
}

function textOf(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") return Object.keys(value).length ? JSON.stringify(value) : "";
  return value === 0 ? "" : String(value);
}
