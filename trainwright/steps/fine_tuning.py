"""The whole chain of a fine-tuning in one call, without an orchestrator: what `trainwright finetune` does.

The steps and their inputs are those of the pipelines and DAGs. On an embedded cluster they are done here, on any other in pods that
mount the claim. Each is idempotent: the same call with the same run id resumes where the one before ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from trainwright.api.objects import Obj, uid_of
from trainwright.checkpoints.pointers import latest_export_lookup
from trainwright.checkpoints.registries.registration import RegistryTarget
from trainwright.evaluation.figures import OF_ROWS, OF_TRAINING
from trainwright.evaluation.loss_curve import kept_history
from trainwright.jobs import EventPrinter, Identity, StepResult, Submission, TrainRequest, Waiting, run_step
from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobNameTaken
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.request.invalid_settings import message_of
from trainwright.jobs.request.model_shape import ModelShape
from trainwright.jobs.request.setting import names_of
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.attempts import attempt_of, attempts_of, needs_new_attempt
from trainwright.jobs.submit.adoption import changed_input
from trainwright.jobs.submit.cluster_fit import OFF, WARN, MemoryEstimate, estimate_memory, nodes_of
from trainwright.jobs.submit.creation import check_run_folder
from trainwright.jobs.submit.resolve import resolve_with
from trainwright.jobs.submit.submit_or_adopt import Submitted
from trainwright.jobs.wait.job_events import JobEvents
from trainwright.steps.chain import FINETUNING, inputs_of
from trainwright.steps.evaluate import CURVE, SUMMARY, EvaluationJob, evaluate_export, figures_of
from trainwright.steps.on_cluster import MOUNT, ClusterSteps, only_pods_see
from trainwright.steps.phases import phases_of
from trainwright.steps.promotion.promote import with_figures
from trainwright.steps.promotion.register import register_run_export
from trainwright.steps.requests import (
    EvaluateExport,
    ExportCheckpoint,
    FineTuning,
    InitializeDataset,
    InitializeModel,
    PromoteModel,
    RegisterModel,
    StartRun,
    StepRun,
)
from trainwright.steps.start import StartedRun, check_exports, start_run
from trainwright.steps.workspace_steps import HereSteps, WorkspaceSteps
from trainwright.storage.errors import BadUri, StorageError
from trainwright.storage.open import open_store
from trainwright.submission.jobs_client import JobsClient
from trainwright.tracking import TrackingTarget, parse_targets, tracked_run, tracking
from trainwright.workspace import WorkspaceError, begin_run, touch_run
from trainwright.workspace.run_record import finding_lines

STEPS = ("start", "dataset", "model", "train", "export", "evaluate", "promote", "register")
_SMALL_MODEL = 100_000
"""Parameters; 0.1 million."""
_ANY_DIGEST = f"sha256:{'0' * 64}"
_EVALUATED = ("before", "after", "rows", "held_out", "trained_rows", "samples", "sample")


class Watcher(Protocol):
    """Gets what happens in a chain."""

    def begin(self, step: str) -> None:
        """A step of STEPS begins."""

    def end(self, step: str, note: str) -> None:
        """It has ended well. `note` says what came of it."""

    def line(self, text: str) -> None:
        """A line about the progress of a step."""

    def events(self, events: JobEvents) -> None:
        """Events of the training's job."""

    def verdict(self, lines: Sequence[str]) -> None:
        """What the report on the dataset warns of, before anything trains on it."""

    def estimate(self, estimate: MemoryEstimate) -> None:
        """The memory that the training needs, before it is submitted."""

    def evaluated(self, result: FineTuned) -> None:
        """The model is exported and evaluated; what follows may still fail."""


@dataclass(frozen=True)
class FineTuned:
    """What came of a chain. Paths are empty where this machine does not have the workspace."""

    run_id: str
    dataset: dict[str, Any]
    model: dict[str, Any]
    trainjob: str
    metrics: dict[str, str]
    checkpoint: dict[str, Any]
    evaluation: dict[str, Any]
    summary: str = ""
    loss_curve: str = ""
    promotion: dict[str, Any] | None = None
    registration: dict[str, Any] | None = None


def fine_tune(
    cluster: JobsClient,
    request: FineTuning,
    *,
    owner: str,
    run_id: str,
    namespace: str,
    watcher: Watcher,
    trackers: Sequence[str] = (),
) -> FineTuned:
    """Fine-tune as asked, and resume the run of this id if it has begun. `trackers` get the metrics, see `parse_targets`.

    Credentials for sources and stores are those of this process for the steps that are done here, and the Secrets of the request
    for pods. Raises ValueError for settings, InitializerError, CheckpointError, StorageError, WorkspaceError, ApiError, and the errors
    of `run_step`: on Ctrl-C the training is suspended.
    """
    chain = _Chain(cluster, request, owner, run_id, namespace, watcher, trackers)
    return chain.run()


class _Chain:
    def __init__(
        self,
        cluster: JobsClient,
        request: FineTuning,
        owner: str,
        run_id: str,
        namespace: str,
        watcher: Watcher,
        trackers: Sequence[str],
    ):
        self._cluster, self._request, self._namespace, self._watcher = cluster, request, namespace, watcher
        self._owner, self._trackers = owner, trackers
        self._run = StepRun(owner, run_id)
        self._identity = Identity(owner, run_id, "train")
        of_start = {name: getattr(request, name) for name in request.given & names_of(StartRun)}
        self._steps_of_run = phases_of(StartRun().having(**of_start))
        unknown = {"digest": _ANY_DIGEST, "shape": {}}
        self._outputs: dict[str, dict[str, Any]] = {"initialize-dataset": unknown, "initialize-model": unknown}
        """What the steps of the table have returned; at first what stands for it where the settings are checked."""
        self._note = ""
        self._recorded_in: Path | None = None
        """The workspace of this machine whose record of the run is this chain's."""

    def run(self) -> FineTuned:
        with self._step("start"):
            started = self._start()
            steps = self._steps(started)
            check_run_folder(self._cluster, Workspace.parse(started.workspace), self._identity, self._namespace)
            training = self._begun_training(steps)
        run = self._run if training is None else StepRun(self._owner, "")  # nothing of the run is written before it is checked
        with self._step("dataset"):
            dataset = self._dataset(steps, run)
            self._check_inputs(training, dataset=dataset["digest"])
            if training is None and isinstance(steps, HereSteps):
                self._recorded_in = Path(started.path)
        with self._step("model"):
            model = self._model(steps, run, dataset)
            self._check_inputs(training, model=model["digest"])
        if training is not None:
            digests = {"dataset": dataset["digest"], "model": model["digest"]}
            self._recorded_in = Path(started.path)
            begin_run(self._recorded_in, self._identity.folder, run=self._run.run_id, owner=self._owner, **digests)
        with self._step("train"):
            trained = self._train(started)
        with self._step("export"):
            exported = steps(ExportCheckpoint.parse(self._inputs("export-checkpoint"), rest=self._steps_of_run.export), self._run)
            self._outputs["export-checkpoint"] = exported
            self._note = str(exported["uri"])
        with self._step("evaluate"):
            evaluation = self._evaluate(steps, started)
        folder = Path(started.path) / evaluation["folder"] if started.path else None
        done = FineTuned(
            run_id=self._run.run_id,
            dataset={name: value for name, value in dataset.items() if name not in ("report", "report_page")},
            model=model,
            trainjob=trained.trainjob,
            metrics=trained.metrics,
            checkpoint=exported,
            evaluation={name: evaluation[name] for name in _EVALUATED if name in evaluation},
            summary=str(folder / SUMMARY) if folder else "",
            loss_curve=str(folder / CURVE) if folder and evaluation["loss_curve"] else "",
        )
        self._watcher.evaluated(done)
        if self._request.promote:
            with self._step("promote"):
                done = replace(done, promotion=self._promote(steps))
        if self._request.registry:
            with self._step("register"):
                done = replace(done, registration=self._register(started))
        return done

    def _inputs(self, step: str) -> dict[str, Any]:
        return inputs_of(
            FINETUNING[step].of_values, self._request.by_name(), lambda earlier, output: self._outputs[earlier][output]
        )

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self._note = ""
        self._watcher.begin(name)
        try:
            yield
        except Cancelled:  # the training is suspended, and can be resumed
            raise
        except Exception as error:
            if self._recorded_in is not None:
                reason = message_of(error).partition("\n")[0]  # a report follows, which the page makes of the TrainJob
                with suppress(StorageError, WorkspaceError):  # the step's error matters more
                    touch_run(self._recorded_in, self._identity.folder, failed=f"{name}: {reason}")
            raise
        self._watcher.end(name, self._note)

    def _start(self) -> StartedRun:
        started = start_run(
            self._cluster,
            self._request.workspace,
            owner=self._owner,
            run_id=self._run.run_id,
            namespace=self._namespace,
            workspace_path="",
            num_nodes=self._steps_of_run.training.num_nodes or 1,
        )
        # Wrong settings are found now, and not when everything is prepared.
        self._targets(started)
        if self._request.registry:
            try:
                RegistryTarget.parse(self._request.registry, self._steps_of_run.registration.name, os.environ)
            except BadUri as error:
                raise ValueError(f"registry: {error}") from None
        self._resolve(self._training(started))
        self._note = f"run {self._run.run_id}, workspace {started.claim}"
        return started

    def _targets(self, started: StartedRun) -> tuple[TrackingTarget, ...]:
        return parse_targets(self._trackers, os.environ, _tracking_folder(started))

    def _steps(self, started: StartedRun) -> WorkspaceSteps:
        # Whether it can be exported to the target is found out now, and not after the training.
        if started.path and self._steps_of_run.runs_on != "cluster":
            open_store(self._request.export_uri).check_writable()
            return HereSteps(Path(started.path), self._watcher.line)
        check_exports(self._request.export_uri, pods_mount=MOUNT, needed_here=bool(self._request.registry))
        return ClusterSteps(
            self._cluster,
            Workspace.parse(started.workspace),
            Identity(self._owner, self._run.run_id, "step"),
            self._namespace,
            job=self._steps_of_run.job,
            event_printer=EventPrinter(self._watcher.line),
        )

    def _begun_training(self, steps: WorkspaceSteps) -> Obj | None:
        """Return the job that the training of this run will adopt, None without one. In pods, the steps adopt their own jobs."""
        if not isinstance(steps, HereSteps):  # in pods, the steps adopt their own jobs
            return None
        jobs = attempts_of(self._cluster, self._identity, self._namespace)
        newest = max(jobs, key=attempt_of, default=None)
        return None if newest is None or needs_new_attempt(newest) else newest

    def _check_inputs(self, training: Obj | None, *, dataset: str = "", model: str = "") -> None:
        """Raise TrainJobNameTaken if the training of this run has begun with other inputs."""
        if training is not None and (problem := changed_input(training, dataset=dataset, model=model)):
            raise TrainJobNameTaken(problem)

    def _dataset(self, steps: WorkspaceSteps, run: StepRun) -> dict[str, Any]:
        dataset = steps(InitializeDataset.parse(self._inputs("initialize-dataset"), rest=self._steps_of_run.data), run)
        self._outputs["initialize-dataset"] = dataset
        self._watcher.verdict(verdict_of(dataset))
        if not dataset["test_rows"]:
            metric = self._steps_of_run.promotion.metric
            if self._request.promote == "better" and metric in OF_ROWS:
                raise ValueError(
                    f"promote: better compares {metric} on held-out rows, and the dataset has none: hold some out (test_fraction of "
                    f"the data), or compare {OF_TRAINING}{metric} (promote_metric of the evaluation)"
                )
            self._watcher.verdict(["note: no row is held out: the figures are of rows that are trained on"])
        self._note = f"{dataset['train_rows']} rows to train on, {dataset['test_rows']} held out"
        return dataset

    def _model(self, steps: WorkspaceSteps, run: StepRun, dataset: dict[str, Any]) -> dict[str, Any]:
        model = steps(InitializeModel.parse(self._inputs("initialize-model")), run)
        self._outputs["initialize-model"] = {**model, "shape": _with_longest_row(model["shape"], dataset)}
        if model["shape"]:
            parameters = int(model["shape"]["parameters"])
            is_small = parameters < _SMALL_MODEL
            self._note = f"{parameters:,} parameters" if is_small else f"{parameters / 1e6:,.1f} million parameters"
        return model

    def _train(self, started: StartedRun) -> StepResult:
        request = self._training(started)
        if (found := estimate_memory(self._resolve(request), nodes_of(self._cluster))) is not None:
            self._watcher.estimate(found)
        if found is not None and request.placement.memory_check == WARN:
            request = request.having(placement=request.placement.having(memory_check=OFF))  # the submission would say it again
        folder = _tracking_folder(started)
        with (
            tracking(
                tracked_run(self._identity, request), self._targets(started), folder=folder, write=self._watcher.line
            ) as tracker,
            kept_history(started.path) as history,
        ):

            def begin(submitted: Submitted) -> None:
                tracker.begin(uid_of(submitted.trainjob))
                history.begin(submitted.trainjob)

            latest = latest_export_lookup(self._request.export_uri)
            submission = Submission(self._cluster, request, self._identity, self._namespace, latest)
            observers = (self._watcher.events, tracker, history)
            trained = run_step(submission, Waiting.of(request, observers=observers, on_submitted=begin))
        self._outputs["train"] = {"trainjob": trained.trainjob, "folder": trained.folder, "usage": trained.usage_as_object()}
        self._note = f"TrainJob {trained.namespace}/{trained.trainjob}"
        return trained

    def _training(self, started: StartedRun) -> TrainRequest:
        return TrainRequest.parse({**self._inputs("train"), "workspace": started.workspace}, rest=self._steps_of_run.training)

    def _resolve(self, request: TrainRequest) -> ResolvedRequest:
        return resolve_with(self._cluster, request, self._namespace, bundled=self._cluster.uses_bundled_runtimes)[0]

    def _evaluate(self, steps: WorkspaceSteps, started: StartedRun) -> dict[str, Any]:
        without_logs = EvaluateExport.parse_some({"logging": {"logs": "none"}})
        asked = EvaluateExport.parse(self._inputs("evaluate"), rest=self._steps_of_run.evaluation.over(without_logs))
        printer, run = EventPrinter(self._watcher.line), StepRun(f"{self._owner}/evaluate", self._run.run_id)
        job = EvaluationJob(self._cluster, self._namespace, started.workspace, event_printer=printer)
        evaluation = evaluate_export(job, asked, run, steps, with_curve=bool(started.path))
        self._outputs["evaluate"] = {"evaluation": figures_of(evaluation)}
        return evaluation

    def _promote(self, steps: WorkspaceSteps) -> dict[str, Any]:
        if not only_pods_see(self._request.export_uri):  # a pod takes longer to start than this takes here
            steps = HereSteps(Path(), self._watcher.line)
        asked = PromoteModel.parse(self._inputs("promote-model"), rest=self._steps_of_run.promotion)
        verdict = steps(with_figures(asked), self._run)
        self._note = f"{'promoted' if verdict['promoted'] else 'kept'}: {verdict['reason']}"
        return {name: verdict[name] for name in ("promoted", "reason", "champion_uri")}

    def _register(self, started: StartedRun) -> dict[str, Any]:
        registration = register_run_export(
            RegisterModel.parse(self._inputs("register-model"), rest=self._steps_of_run.registration),
            folder=_tracking_folder(started),
            on_line=self._watcher.line,
        )
        self._note = registration.uri
        return {"uri": registration.uri, "version": registration.version, "existed": registration.existed}


def verdict_of(dataset: dict[str, Any]) -> list[str]:
    """Return what the report on the dataset of a chain warns of, and what it could not check, a line for each."""
    return finding_lines((dataset.get("figures") or {}).get("findings"))


def _tracking_folder(started: StartedRun) -> Path | None:
    """Return where trackers without a server write; None where this machine does not have the workspace."""
    return Path(started.path) / "tracking" if started.path else None


def _with_longest_row(shape: dict[str, Any], dataset: dict[str, Any]) -> dict[str, Any]:
    """Return the shape of the model with the tokens of the longest row, if the report of the data counted them all."""
    splits = (dataset.get("figures") or {}).get("splits") or {}
    tokens = (splits.get("train") or {}).get("tokens") or {}
    if not shape or not tokens or tokens["counted"] < dataset["train_rows"]:
        return shape
    most = ModelShape.of(shape).most_tokens
    return {**shape, "most_tokens": min(most or tokens["longest"], tokens["longest"])}
