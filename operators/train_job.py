"""Submit or adopt a TrainJob, and wait until it ends, in the worker or (deferred) in the triggerer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator

from trainwright.operators import cancellation
from trainwright.operators.deferral.deferral_options import deferral_options
from trainwright.operators.errors import fail_fast
from trainwright.operators.groups import Data, Deferral, Ending, Limits, Logging, Placement, Secrets, check_groups
from trainwright.operators.jobs.job_outcome import WaitsForTrainJob
from trainwright.operators.jobs.job_reference import JobReference
from trainwright.operators.reporting.job_report import report_end, report_submitted
from trainwright.operators.reporting.lineage import TrainJobLineage
from trainwright.operators.reporting.links import begin_links
from trainwright.operators.tracked_task import check_tracking, tracked
from trainwright.operators.values.airflow_api import conf
from trainwright.operators.values.call_arguments import check_arguments, check_rendered, templated_arguments
from trainwright.operators.values.credentials import credentials, step_credentials
from trainwright.operators.values.given_run import Asked, refuse_settings_of_pipelines
from trainwright.operators.values.literal_secrets import reject_literal_secrets
from trainwright.operators.values.task_identity import task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.jobs import Identity, Submission, Submitted, TrainRequest
    from trainwright.jobs.wait.stop_event import StopEvent
    from trainwright.steps.requests import Run
    from trainwright.submission.jobs_client import JobsClient


OWN_TEMPLATED = ("run", "run_id", "namespace", "conn_id", "store_conn_id", "hub_conn_id", "tracking", "workspace_path")


class TrainJobOperator(TrainJobLineage, WaitsForTrainJob, BaseOperator):
    """Run any training in a TrainJob and wait until it succeeds: a runtime, a function, code, or a complete manifest.

    With only data and a workspace, the job is supervised fine-tuning in the runtime trl-sft. A retry adopts the job of the
    previous try; clearing the task starts a new job. If the worker is lost (SIGTERM, SIGKILL), the job keeps running for the
    retry. If the task is marked failed, exceeds a deadline, or has no retry left when its worker gets SIGTERM, the job is
    suspended, and the next try resumes from the run's last complete checkpoint. Dicts and lists may be given as JSON. All
    settings are described in docs/reference/parameters.md; the KFP component and `trainwright submit` share them.

    :param runtime: Training runtime. Defaults to the builtin trainer's runtime, torch-distributed for a function or code, else
        trl-sft.
    :param builtin: Builtin trainer: sft, dpo, kto or torchtune. Defaults to that of the runtime, such as sft, if no other program is
        set.
    :param settings: Settings of the builtin trainer, see docs/settings.md.
    :param image: Image of the job's main container.
    :param command: Command of that container; with code, it runs in the code's folder.
    :param args: Arguments of the command.
    :param env: Environment variables: strings, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. Literal credentials
        are rejected.
    :param func: Training function. Its source is sent, as in the Kubeflow SDK; nothing is pickled.
    :param func_args: Keyword arguments of the function, as JSON.
    :param packages_to_install: Python packages for a function or code, installed on every node.
    :param pip_index_urls: Package indexes for these packages: the first replaces PyPI, the others are additional.
    :param code: Folder, or git+https://HOST/PATH@REVISION[#subdirectory=FOLDER], that is packed and unpacked on every node.
    :param manifest: Complete TrainJob, as an object, YAML text, or the path of a YAML file.
    :param num_nodes: Number of training nodes. Empty or 0: the runtime's.
    :param num_proc_per_node: Number of processes per node. Empty or 0: one per GPU, else one per CPU.
    :param resources_per_node: Resources per node: {"nvidia.com/gpu": "1"} for both limits and requests, or {"limits": ...,
        "requests": ...}.
    :param labels: Labels of the TrainJob.
    :param dataset_uri: Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path; see docs/sources.md.
        cache://SCHEMA/TABLE reads a table from a data cache; see docs/data-cache.md.
    :param dataset_digest: Digest of the prepared dataset; nodes reject any other.
    :param model_uri: Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.
    :param model_digest: Digest of the prepared model; nodes reject any other.
    :param workspace: Volume that the steps of a run share: pvc://CLAIM[/FOLDER], or with ?size=20Gi[&class=&access=&retain=] to
        create it. The run's folder on it is mounted at /workspace.
    :param resume: Where a new job starts: auto (the run's last checkpoint, if the request has not changed), last (also if it has),
        never, the URI of an exported checkpoint, or weights:URI (the run's last checkpoint, else the weights of that export at step
        0).
    :param export_uri: Where the run exports checkpoints; resume=auto starts from there if the workspace has no checkpoint.
    :param placement: Where the pods run: queue, topology, nodes, volumes, annotations, patches. Its settings: queue_name,
        priority_class, topology, node_selector, tolerations, affinity, volumes, volume_mounts, annotations, runtime_patches,
        runtime_kind, submission_mode, memory_check.
    :param limits: When a job has failed, and how often it may begin again: deadlines, stuck and diverged jobs, restarts, budgets.
        Its settings: queue_timeout_seconds, start_timeout_seconds, run_timeout_seconds, lost_node_timeout_seconds, fail_if_stuck,
        fail_on_divergence, restarts, preemption_budget, job_retries.
    :param ending: What happens to jobs at a cancellation, without a waiting step, and when the step is repeated. Its settings:
        on_cancel, waiter_lease_seconds, adopt_finished, on_changed_request, previous_jobs, tie_to_run.
    :param logging: Which logs of the job are shown. Its settings: logs, log_bytes.
    :param secrets: Names of Secrets whose keys pods get as variables. Its settings: store_secret, hub_secret, dataset_secret,
        model_secret, resume_secret.
    :param data: What the initializers of dataset and model must know, and the data cache. Its settings: metadata_loc,
        num_data_nodes, worker_mem, dataset_env, model_env, model_shape.
    :param run: the run, as StartRunOperator returns it: its id, its workspace, where it is done, and further settings of the training.
    :param run_id: id of the run, which names its folder, its exports and its TrainJobs; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the TrainJob; defaults to the manifest's, else the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md: pods get them as a
        Secret of the job, instead of store_secret.
    :param hub_conn_id: connection with the token of the hub, likewise instead of hub_secret.
    :param tracking: Where metrics go while the training runs: mlflow, wandb, tensorboard, each also with an address; see
        docs/tracking.md. What a deferred task has logged goes there at its end.
    :param workspace_path: where the worker mounts the workspace, if it does: trackers without a server write to tracking/ in it.
    :param wait_for_completion: False submits the job and returns at once; a TrainJobSensor can wait for it. Nothing stops it then.
    :param durable: whether a retry adopts the job of the previous try; else it stops that job and submits a new one.
    :param deferrable: wait in the triggerer; defaults to [operators] default_deferrable.
    :param deferral: how a deferred task waits: log_poll_interval, min_defer_seconds.
    :return: trainjob, namespace, metrics, results (return value of a function, or results.json), folder (in the workspace). Without
        waiting: trainjob, namespace, uid, submission_mode, folder, has_results.
    """

    template_fields: Collection[str] = (
        # Written by `make edges` from TrainRequest.
        *("runtime", "builtin", "settings", "image", "command", "args", "env", "func_args"),
        *("packages_to_install", "pip_index_urls", "code", "manifest", "num_nodes"),
        *("num_proc_per_node", "resources_per_node", "labels", "dataset_uri", "dataset_digest"),
        *("model_uri", "model_digest", "workspace", "resume", "export_uri", "placement", "limits", "ending"),
        *("logging", "secrets", "data"),
        # End of what `make edges` writes.
        *OWN_TEMPLATED,
    )
    template_fields_renderers = {"settings": "json", "env": "json", "func_args": "json", "manifest": "yaml"}

    def __init__(
        self,
        *,
        # Written by `make edges` from TrainRequest.
        runtime: str = "",
        builtin: str = "",
        settings: dict[str, Any] | str | None = None,
        image: str = "",
        command: list[Any] | str | None = None,
        args: list[Any] | str | None = None,
        env: dict[str, Any] | str | None = None,
        func: Callable[..., Any] | str | None = None,
        func_args: dict[str, Any] | str | None = None,
        packages_to_install: list[Any] | str | None = None,
        pip_index_urls: list[Any] | str | None = None,
        code: str = "",
        manifest: dict[str, Any] | str | None = None,
        num_nodes: int | str | None = None,
        num_proc_per_node: int | str | None = None,
        resources_per_node: dict[str, Any] | str | None = None,
        labels: dict[str, Any] | str | None = None,
        dataset_uri: str = "",
        dataset_digest: str = "",
        model_uri: str = "",
        model_digest: str = "",
        workspace: str = "",
        resume: str = "auto",
        export_uri: str = "",
        placement: Placement | str | None = None,
        limits: Limits | str | None = None,
        ending: Ending | str | None = None,
        logging: Logging | str | None = None,
        secrets: Secrets | str | None = None,
        data: Data | str | None = None,
        # End of what `make edges` writes.
        run: dict[str, Any] | str | None = None,
        run_id: str = "",
        namespace: str = "",
        conn_id: str | None = None,
        store_conn_id: str | None = None,
        hub_conn_id: str | None = None,
        tracking: list[Any] | str | None = None,
        workspace_path: str = "",
        wait_for_completion: bool = True,
        durable: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        deferral: Deferral | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from TrainRequest.
        self.runtime = runtime
        self.builtin = builtin
        self.settings = settings
        self.image = image
        self.command = command
        self.args = args
        self.env = env
        self.func = func
        self.func_args = func_args
        self.packages_to_install = packages_to_install
        self.pip_index_urls = pip_index_urls
        self.code = code
        self.manifest = manifest
        self.num_nodes = num_nodes
        self.num_proc_per_node = num_proc_per_node
        self.resources_per_node = resources_per_node
        self.labels = labels
        self.dataset_uri = dataset_uri
        self.dataset_digest = dataset_digest
        self.model_uri = model_uri
        self.model_digest = model_digest
        self.workspace = workspace
        self.resume = resume
        self.export_uri = export_uri
        self.placement = placement
        self.limits = limits
        self.ending = ending
        self.logging = logging
        self.secrets = secrets
        self.data = data
        # End of what `make edges` writes.
        self.run, self.run_id, self.namespace, self.conn_id = run, run_id, namespace, conn_id
        self.store_conn_id, self.hub_conn_id = store_conn_id, hub_conn_id
        self.tracking, self.workspace_path = tracking, workspace_path
        self.wait_for_completion, self.durable = wait_for_completion, durable
        self.deferrable = deferrable
        self.log_poll_interval, self.min_defer_seconds = deferral_options(deferral)
        reject_literal_secrets(self._values())
        check_groups(
            deferral=deferral, placement=placement, limits=limits, ending=ending, logging=logging, secrets=secrets, data=data
        )
        if func is not None and not kwargs.get("_airflow_mapped_validation_only"):
            check_arguments(func, self._arguments_of_call(func_args))
        self._templated_arguments = templated_arguments(self._arguments_of_call(func_args))

    def _values(self) -> dict[str, Any]:
        """The settings by name, as they were given, or rendered."""
        return {
            # Written by `make edges` from TrainRequest.
            "runtime": self.runtime,
            "builtin": self.builtin,
            "settings": self.settings,
            "image": self.image,
            "command": self.command,
            "args": self.args,
            "env": self.env,
            "func": self.func,
            "func_args": self.func_args,
            "packages_to_install": self.packages_to_install,
            "pip_index_urls": self.pip_index_urls,
            "code": self.code,
            "manifest": self.manifest,
            "num_nodes": self.num_nodes,
            "num_proc_per_node": self.num_proc_per_node,
            "resources_per_node": self.resources_per_node,
            "labels": self.labels,
            "dataset_uri": self.dataset_uri,
            "dataset_digest": self.dataset_digest,
            "model_uri": self.model_uri,
            "model_digest": self.model_digest,
            "workspace": self.workspace,
            "resume": self.resume,
            "export_uri": self.export_uri,
            "placement": self.placement,
            "limits": self.limits,
            "ending": self.ending,
            "logging": self.logging,
            "secrets": self.secrets,
            "data": self.data,
            # End of what `make edges` writes.
        }

    @fail_fast()
    def execute(self, context: Context) -> Any:
        from trainwright.jobs import Waiting, run_step
        from trainwright.jobs.wait.stop_event import stop_on_signals
        from trainwright.operators.values.allowed_places import check_places, places_given
        from trainwright.steps.row_trainer import check_prepared_rows

        begin_links(self)
        # Before anything is read: a manifest may be a file of this worker.
        check_places((self.conn_id, self.store_conn_id, self.hub_conn_id), **places_given(self._values()))
        asked = self._begin()
        request, identity = asked.request, self._identity(context)
        check_places((self.conn_id, self.store_conn_id, self._hub), **places_given(request.given_values()))
        check_tracking(self)
        check_prepared_rows(request, self.workspace_path)
        cluster = self._cluster()
        namespace = asked.namespace(cluster)
        if not self.durable and int(context["ti"].try_number) > 1:
            cancellation.stop_previous_try(cluster, identity, namespace, request.ending.on_cancel)
        if self.wait_for_completion and not self.deferrable:
            submission = self._submission(cluster, request, identity)
            with tracked(self, context) as tracker, report_end(self):

                def on_submitted(submitted: Submitted) -> None:
                    report_submitted(self, context, submitted)
                    tracker.begin(submitted.trainjob)

                printer, on_signal = self._event_printer(), self._on_signal(context)
                more: Any = {"observers": (tracker,), "on_signal": on_signal, "on_submitted": on_submitted}
                return self._done(context, run_step(submission, Waiting.of(request, printer, **more)))
        limit = self.execution_timeout.total_seconds() if self.execution_timeout else None
        with stop_on_signals() as stop:
            if not self.wait_for_completion:
                return self._reference(self._submit_unless_ended(context, cluster, stop)).as_xcom()
            return self._submit_and_defer(context, cluster, stop, time.time() + limit if limit is not None else None)

    @fail_fast()
    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """As of the base class; the credentials that pods had from connections are deleted with the end of the job."""
        self._begin()
        try:
            ended = {"metadata": {name: event.get(name) or "" for name in ("name", "namespace", "uid")}}
            with tracked(self, context, ended, event.get("metrics")) as self._tracker:
                result = super().execute_complete(context, event)
        except Exception:
            if event["outcome"] in ("failed", "deleted", "succeeded"):
                self._forget_credentials(context, event)
            raise
        self._forget_credentials(context, event)
        return result

    @fail_fast()
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        self._begin()
        return super().resume_execution(next_method, next_kwargs, context)

    def _begin(self) -> Asked:
        """Read the settings, which are rendered now. Raises InvalidSettings, LiteralSecret, TypeError for arguments of the call."""
        from trainwright.steps.requests import Run

        run = Run.of_step(self.run, run_id=self.run_id, namespace=self.namespace)
        run = run.having(workspace_path=self.workspace_path)  # the run's is that of tasks on files
        self._asked = Asked(self.request(run), run)
        return self._asked

    def _forget_credentials(self, context: Context, event: dict[str, Any]) -> None:
        from trainwright.jobs.submit.step_credentials import delete_credentials

        if self.store_conn_id or self._hub:
            identity = task_identity(context, self._asked.run.run_id)
            delete_credentials(self._cluster(event.get("submission_mode") or ""), identity, event["namespace"])

    def dry_run(self) -> None:
        """Print the TrainJob that would be submitted, and the objects that are built from it, as YAML. Creates nothing.

        Without a cluster, bundled runtimes are used. The id of the run is `run_id`, else dry-run. Raises the errors of an invalid
        request, PlaceNotAllowed, and RuntimeNotFound if neither the cluster nor the bundled ones have the runtime.
        """
        from trainwright.operators.jobs.dry_run import preview_task

        print(preview_task(self), end="")

    def _submit_and_defer(self, context: Context, cluster: JobsClient, stop: StopEvent, until: float | None) -> Any:
        """The result of a job that has already succeeded; otherwise raises TaskDeferred, or Cancelled if `stop` is set."""
        from trainwright.jobs import Phase, phase_of

        submitted = self._submit_unless_ended(context, cluster, stop)
        cluster, trainjob = submitted.cluster, submitted.trainjob
        if phase_of(trainjob) is Phase.Succeeded:
            self._show_rest_of_log(cluster, trainjob)
            self._judge_end(cluster, trainjob)
            return self._result(context, cluster, trainjob)
        self._defer(context, trainjob, until, cluster.mode)

    def _show_rest_of_log(self, cluster: JobsClient, trainjob: dict[str, Any]) -> None:
        """Show what no triggerer has shown of the log of a job that has ended before the task could be deferred."""
        from trainwright.jobs.logs.poll_logs import PolledLogs
        from trainwright.jobs.logs.shown_log import shown_until
        from trainwright.jobs.wait.event_printer import format_log_line, is_shown

        if (options := self._asked.request.logging.options) is not None and self.log_poll_interval > 0:
            for portion in PolledLogs(cluster, trainjob, options, shown_until(trainjob)).drain():
                for line in filter(is_shown, portion):
                    self.log.info("%s", format_log_line(line))

    def _submit_unless_ended(self, context: Context, cluster: JobsClient, stop: StopEvent) -> Submitted:
        """Submit or adopt the job. Raises Cancelled if `stop` was set meanwhile, so that no job runs unattended."""
        from trainwright.jobs import Phase, phase_of
        from trainwright.jobs.diagnosis.errors import Cancelled
        from trainwright.jobs.wait.give_up import cancel_unwatched_job

        submitted = self._submit(context, cluster)
        cluster, trainjob = submitted.cluster, submitted.trainjob
        if stop.is_set() and phase_of(trainjob) is not Phase.Succeeded:
            result = cancel_unwatched_job(cluster, trainjob, self._on_signal(context))
            raise Cancelled(f"the task was ended before it was deferred; TrainJob {trainjob['metadata']['name']}: {result}")
        return submitted

    def _after_failure(self, context: Context, cluster: JobsClient, failure: Exception, until: float | None) -> Any:
        """After a preemption, submit the next job and wait for it, within the budget. Otherwise raise the failure."""
        from trainwright.jobs import Preempted
        from trainwright.jobs.diagnosis.errors import Cancelled
        from trainwright.jobs.diagnosis.preemption import wait_to_resume
        from trainwright.jobs.wait.stop_event import stop_on_signals

        if not isinstance(failure, Preempted) or not (budget := self._asked.request.limits.preemption_budget):
            raise failure
        with stop_on_signals() as stop:
            if not wait_to_resume(cluster, failure, budget, stop):
                raise Cancelled("the task was ended while it waited to resume a preempted job; no job is running") from failure
            return self._submit_and_defer(context, cluster, stop, until)

    def _find_job(self, context: Context) -> tuple[JobsClient, dict[str, Any]] | None:
        from trainwright.jobs.submit.job_lookup import find_job

        cluster = self._cluster()
        return find_job(cluster, task_identity(context, self._asked.run.run_id), self._asked.namespace(cluster))

    def _wait_in_worker(self, context: Context, cluster: JobsClient, trainjob: dict[str, Any]) -> Any:
        from trainwright.jobs import Waiting
        from trainwright.jobs.wait.run_to_end import follow_to_end

        printer = self._event_printer()
        waiting = Waiting.of(self._asked.request, printer, on_signal=self._on_signal(context))
        ended = follow_to_end(cluster, trainjob, waiting, resubmit=partial(self._submit, context, cluster))
        return self._result(context, cluster, ended, dict(printer.progress.metrics) if printer.progress else None)

    def _submit(self, context: Context, cluster: JobsClient) -> Submitted:
        from trainwright.jobs import submit_or_adopt

        submission = self._submission(cluster, self._asked.request, self._identity(context))
        submitted = submit_or_adopt(submission, waiter_lease_seconds=self._lease_seconds())
        report_submitted(self, context, submitted)
        return submitted

    def _defer(self, context: Context, trainjob: dict[str, Any], until: float | None, mode: str) -> NoReturn:
        """`until` is the end of the task's execution_timeout, in seconds since the epoch. Raises TaskDeferred."""
        lease = self._lease_seconds()
        self._wait_in_triggerer(context, trainjob, self._asked.request, until=until, mode=mode, lease_seconds=lease)

    def _arguments_of_call(self, func_args: Any) -> Any:
        """The arguments of the function, by name, as the DAG gives them; text for a template of all of them."""
        return {} if func_args is None else func_args

    def request(self, run: Run | None = None) -> TrainRequest:
        """The settings as a validated `trainwright.jobs.TrainRequest`, with those that its run has for it.

        Raises InvalidSettings, LiteralSecret.
        """
        from trainwright.jobs import TrainRequest
        from trainwright.jobs.request.typed_parameters import given_parameters
        from trainwright.jobs.request.workspace import Workspace

        check_rendered(self.func, self.func_args, self._templated_arguments)
        given = TrainRequest.parse_some(given_parameters(TrainRequest, self._values()))
        request = given if run is None else run.training.joined(given)
        if run is not None and run.workspace and request.workspace is None:
            request = request.having(workspace=Workspace.parse(run.workspace))
        refuse_settings_of_pipelines(request)
        return request.checked()

    @property
    def _hub(self) -> str | None:
        """The connection of the hub: the task's, else the run's."""
        return self.hub_conn_id or self._asked.run.hub_conn_id or None

    @property
    def _on_give_up(self) -> str:
        return self._asked.request.ending.on_cancel

    @property
    def _mode(self) -> str:
        return self._asked.submission_mode

    def _identity(self, context: Context) -> Identity:
        """The identity of the task, as its TrainJob notes it."""
        on_cancel = self._asked.request.ending.on_cancel if self.wait_for_completion else "keep"
        return task_identity(context, self._asked.run.run_id, on_cancel=on_cancel)

    def _on_signal(self, context: Context) -> Any:
        return cancellation.on_signal(context, self._on_give_up, durable=self.durable)

    def _submission(self, cluster: JobsClient, request: TrainRequest, identity: Identity) -> Submission:
        """The submission, with the run's latest export and the credentials of the task's connections."""
        from trainwright.jobs import Submission

        namespace, latest = self._asked.namespace(cluster), self._latest_export if request.export_uri else None
        found = step_credentials(self.store_conn_id, self._hub)
        return Submission(cluster, request, identity, namespace, latest, credentials=found)

    def _lease_seconds(self) -> int:
        """The length of the lease on the job; 0 without one, as where nobody waits."""
        from trainwright.jobs.wait.waiting import waiter_options_of

        return waiter_options_of(self._asked.request, suspends_at_once=False).lease_seconds if self.wait_for_completion else 0

    def _latest_export(self, identity: Identity) -> str:
        """The URI of the run's latest export, read with the credentials of the connections; empty if there is none."""
        from trainwright.checkpoints.resume_source import latest_export_lookup

        with credentials(self.store_conn_id, self._hub):
            return latest_export_lookup(self._asked.request.export_uri)(identity)

    def _result(
        self, context: Context, cluster: JobsClient, trainjob: dict[str, Any], metrics: dict[str, str] | None = None
    ) -> Any:
        from trainwright.jobs.wait.run_step import result_of

        return self._done(context, result_of(cluster, trainjob, self._asked.request, metrics))

    def _has_results(self) -> bool:
        request = self._asked.request
        return request.func is not None or bool(request.code)

    def _observe_logged(self, trainjob: dict[str, Any], entries: Iterable[Mapping[str, float]]) -> None:
        from trainwright.jobs.wait.job_events import Logged

        if entries and (tracker := vars(self).get("_tracker")) is not None:
            tracker.begin(trainjob)
            tracker((Logged(tuple(entries)),))

    def _fails_on_divergence(self) -> bool:
        return self._asked.request.limits.fail_on_divergence

    def _folder(self, context: Context) -> str:
        return task_identity(context, self._asked.run.run_id).folder if self._asked.request.workspace else ""

    def _reference(self, submitted: Submitted) -> JobReference:
        from trainwright.jobs.state.run_folder import folder_of_job

        metadata = submitted.trainjob["metadata"]
        place = metadata["namespace"], metadata["uid"], str(submitted.cluster.mode)
        return JobReference(metadata["name"], *place, folder_of_job(submitted.trainjob), self._has_results())
