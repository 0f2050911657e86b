// The frame of the page: session, navigation, and the view that the address names.
import { endSession, getJson } from "./api.js";
import { html, render, useEffect, useErrorBoundary, useState } from "./dom.js";
import { to, useRoute } from "./route.js";
import { askOtherTabs, bindServer, forgetEverywhere, onSessionEnd, sessionToken, takeCode } from "./session.js";
import { applyTheme, chosenTheme, nextTheme } from "./theme.js";
import { setServerOrchestrators } from "./views/creator_link.js";
import { FormView } from "./views/form_view.js";
import { JobView } from "./views/job_view.js";
import { JobsView } from "./views/jobs_view.js";
import { LinksDialog } from "./views/links_dialog.js";
import { LoginView, loginConfig, openWithCode } from "./views/login_view.js";
import { ModelsView } from "./views/models_view.js";
import { RunsView } from "./views/runs_view.js";
import { Button, Notice, Problem, useLoaded } from "./widgets.js";

const VIEWS = [
  ["jobs", "TrainJobs"],
  ["runs", "Runs"],
  ["models", "Models"],
  ["new", "New fine-tuning"],
];

function Page({ login, firstProblem }) {
  const [hasSession, setHasSession] = useState(Boolean(sessionToken()));
  const [problem, setProblem] = useState(firstProblem);
  useEffect(
    () =>
      onSessionEnd(() => {
        setHasSession(false);
        setProblem({ message: "The session has ended.", reason: "" });
      }),
    [],
  );
  useEffect(() => {
    const enter = async () => {
      const code = takeCode(); // of a link that was opened in this tab: the browser does not load the page again
      if (!code) return;
      try {
        await openWithCode(code);
        setHasSession(true);
      } catch (error) {
        setProblem(error);
      }
    };
    addEventListener("hashchange", enter);
    return () => removeEventListener("hashchange", enter);
  }, []);
  if (!hasSession) return html`<${LoginView} login=${login} problem=${problem} onOpen=${() => setHasSession(true)} />`;
  return html`<${Frame} login=${login} />`;
}

function Frame({ login }) {
  const { parts, values } = useRoute();
  const [editsLinks, setEditsLinks] = useState(false);
  const { value: cluster, problem, reload } = useLoaded(readCluster, []);
  const view = parts[0] || "jobs";
  useEffect(() => {
    document.title = `${parts[2] || (VIEWS.find(([id]) => id === view) || ["", "Trainwright"])[1]} · Trainwright`;
  }, [view, parts[2]]);
  return html`<a class="skip" href="#main" onClick=${skipToMain}>Skip to the content</a>
    <header class="bar">
      <a class="brand" href=${to("jobs")}><img src="icon.svg" alt="" width="24" height="24" /> Trainwright</a>
      <nav aria-label="Views">
        ${VIEWS.map(([id, title]) => html`<a key=${id} href=${to(id)} aria-current=${id === view ? "page" : undefined}>${title}</a>`)}
      </nav>
      <${ClusterName} cluster=${cluster} />
      <${Button} kind="small" onClick=${() => setEditsLinks(true)}>Links<//>
      <${ThemeSwitch} />
      ${login === "token" ? html`<${Button} kind="small" onClick=${logOut}>Log out<//>` : ""}
    </header>
    ${editsLinks ? html`<${LinksDialog} onClose=${() => setEditsLinks(false)} />` : ""}
    <main id="main" tabindex="-1">
      <${Problem} problem=${problem} />
      ${problem ? html`<${Button} onClick=${reload}>Try again<//>` : ""}
      ${cluster ? html`<${View} key=${view} view=${view} parts=${parts} values=${values} cluster=${cluster} />` : ""}
    </main>`;
}

function View({ view, parts, values, cluster }) {
  const [error, reset] = useErrorBoundary((caught) => console.error(caught));
  if (error) {
    return html`<${Notice} kind="error">This view has failed: ${String(error.message || error)}<//><${Button} onClick=${reset}>Show it again<//>`;
  }
  if (view === "jobs" && parts.length > 2) return html`<${JobView} key=${`${parts[1]}/${parts[2]}`} parts=${parts} cluster=${cluster} />`;
  if (view === "new") return html`<${FormView} parts=${parts} />`;
  if (view === "jobs") return html`<${JobsView} cluster=${cluster} values=${values} />`;
  if (view === "runs") return html`<${RunsView} parts=${parts.slice(1)} cluster=${cluster} values=${values} />`;
  if (view === "models") return html`<${ModelsView} parts=${parts.slice(1)} cluster=${cluster} values=${values} />`;
  return html`<h1>No such view</h1><${Notice} kind="error">There is no such view: ${parts.join("/")}<//>`;
}

function ClusterName({ cluster }) {
  if (!cluster) return null;
  return html`<span class="cluster" title=${cluster.mode === "jobset" ? "JobSets are submitted: the cluster has no TrainJob controller" : ""}
    >${cluster.host.replace(/^https?:\/\//, "")}${cluster.user ? html` as <b>${cluster.user}</b>` : ""}</span
  >`;
}

function ThemeSwitch() {
  const [theme, setTheme] = useState(chosenTheme());
  const change = () => {
    const next = nextTheme(theme);
    applyTheme(next);
    setTheme(next);
  };
  return html`<${Button} kind="small theme" label=${`Colours: ${theme}`} onClick=${change}>${{ system: "◐", light: "☀", dark: "☾" }[theme]}<//>`;
}

async function readCluster(signal) {
  const cluster = await getJson("cluster", { signal });
  setServerOrchestrators(cluster.orchestrators);
  return cluster;
}

function skipToMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

async function logOut() {
  await endSession().catch(() => {});
  forgetEverywhere();
}

async function start() {
  applyTheme(chosenTheme());
  const root = document.getElementById("page");
  let problem = null;
  let login = "link";
  try {
    const code = takeCode();
    ({ login } = await loginConfig());
    bindServer(login === "link" ? location.port || "80" : "");
    if (code) await openWithCode(code);
    else await askOtherTabs();
  } catch (error) {
    problem = error;
  }
  root.textContent = "";
  render(html`<${Page} login=${login} firstProblem=${problem} />`, root);
}

start();
