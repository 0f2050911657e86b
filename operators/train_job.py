"""Submit or adopt a TrainJob, and wait until it ends, in the worker or (deferred) in the triggerer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator

from trainwright.jobs.request.settings_table import TABLE
from trainwright.operators import cancellation
from trainwright.operators.deferral.short_deferral import MIN_DEFER_SECONDS
from trainwright.operators.errors import fail_fast
from trainwright.operators.jobs.job_outcome import WaitsForTrainJob
from trainwright.operators.jobs.job_reference import JobReference
from trainwright.operators.reporting.job_report import report_end, report_submitted
from trainwright.operators.reporting.lineage import TrainJobLineage
from trainwright.operators.reporting.links import begin_links
from trainwright.operators.tracked_task import check_tracking, tracked
from trainwright.operators.trigger import LOG_POLL_INTERVAL_SECONDS
from trainwright.operators.values.airflow_api import conf
from trainwright.operators.values.call_arguments import check_arguments, check_rendered, templated_arguments
from trainwright.operators.values.credentials import credentials, step_credentials
from trainwright.operators.values.literal_secrets import reject_literal_secrets
from trainwright.operators.values.rendered_values import parse_number
from trainwright.operators.values.settings import OWN_TEMPLATED, PLACES, SETTINGS, TEMPLATED
from trainwright.operators.values.task_identity import task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.jobs import Identity, Submission, Submitted, TrainRequest
    from trainwright.jobs.wait.stop_event import StopEvent
    from trainwright.submission.jobs_client import JobsClient


class TrainJobOperator(TrainJobLineage, WaitsForTrainJob, BaseOperator):
    """Run any training in a TrainJob and wait until it succeeds: a runtime, a function, code, or a complete manifest.

    With only data and a workspace, the job is supervised fine-tuning in the runtime trl-sft. A retry adopts the job of the
    previous try; clearing the task starts a new job. If the worker is lost (SIGTERM, SIGKILL), the job keeps running for the
    retry. If the task is marked failed, exceeds a deadline, or has no retry left when its worker gets SIGTERM, the job is
    suspended, and the next try resumes from the run's last complete checkpoint. Dicts and lists may be given as JSON. All
    settings are described in docs/reference/parameters.md; the KFP component and `trainwright submit` share them.

    :param runtime: Training runtime. Defaults to the builtin trainer's runtime, torch-distributed for a function or code, else trl-
        sft.
    :param runtime_kind: ClusterTrainingRuntime, or TrainingRuntime in the job's namespace.
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
    :param annotations: Annotations of the TrainJob.
    :param runtime_patches: Additional spec.runtimePatches, each with manager and trainingRuntimeSpec.
    :param dataset_uri: Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path; see docs/sources.md.
        cache://SCHEMA/TABLE reads a table from a data cache; see docs/data-cache.md.
    :param metadata_loc: Where a cached table is: metadata.json of an Iceberg table, or a file or folder of Parquet or CSV.
    :param num_data_nodes: Number of pods that have a cached table in memory. Empty or 0: 2.
    :param worker_mem: Memory of each of these pods. Empty: 2Gi.
    :param dataset_digest: Digest of the prepared dataset; nodes reject any other.
    :param dataset_env: Environment variables of the dataset initializer.
    :param model_uri: Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.
    :param model_digest: Digest of the prepared model; nodes reject any other.
    :param model_env: Environment variables of the model initializer.
    :param model_shape: Sizes of the model, as the step that prepares it returns them, for the estimate of memory_check.
    :param workspace: Volume that the steps of a run share: pvc://CLAIM[/FOLDER], or with ?size=20Gi[&class=&access=&retain=] to
        create it. The run's folder on it is mounted at /workspace.
    :param queue_name: Kueue LocalQueue: the job starts when the queue admits it.
    :param priority_class: Kueue WorkloadPriorityClass; requires queue_name.
    :param topology: required:KEY, preferred:KEY, unconstrained (Kueue) or exclusive:KEY (JobSet), where KEY is a node label.
    :param node_selector: Node selector of the training pods; does not apply to initializers.
    :param tolerations: Tolerations of the training pods, in addition to the runtime's.
    :param affinity: Node and pod affinity of the training pods.
    :param memory_check: Compare an estimate of the memory that sft, dpo or kto needs with that of the nodes before submission: warn,
        fail or off.
    :param volumes: Volumes of the training pods, besides the runtime's and the workspace.
    :param volume_mounts: Where the training containers mount volumes: those of `volumes`, or of the runtime by name.
    :param queue_timeout_seconds: Maximum seconds that the job may be queued or suspended. 0: no limit.
    :param start_timeout_seconds: Maximum seconds until all pods of the training have started; time of initializers does not count.
        0: no limit.
    :param run_timeout_seconds: Maximum seconds of training; also set as activeDeadlineSeconds, which the cluster enforces. Empty or
        -1: that of the manifest, else a week. 0: no limit.
    :param fail_if_stuck: Whether to fail when waiting cannot help: at once for an invalid image name or a command that the image
        does not have, after a minute without a claim, Secret or queue, after ten without the image or if a policy refuses the pods.
    :param fail_on_divergence: Whether to fail as soon as the loss or the gradient norm is not finite in several reports, one after
        another. Checkpoints stay.
    :param lost_node_timeout_seconds: Maximum seconds for which pods may not end on a lost node; the job is then cancelled as
        on_cancel says. 0: no limit.
    :param logs: Which logs to stream: a rank, all, STEP:RANK, STEP:all, or none.
    :param log_bytes: Maximum bytes of logs to stream; beyond that only the last lines are shown, when the job ends.
    :param resume: Where a new job starts: auto (the run's last checkpoint, if the request has not changed), last (also if it has),
        never, the URI of an exported checkpoint, or weights:URI (the run's last checkpoint, else the weights of that export at step
        0).
    :param export_uri: Where the run exports checkpoints; resume=auto starts from there if the workspace has no checkpoint.
    :param previous_jobs: Whether to keep or delete finished jobs of this step when the next one is submitted.
    :param preemption_budget: Maximum automatic resubmissions after preemption, for the whole step.
    :param restarts: Restarts of a failed pod within one TrainJob. Empty or 0: none for a function or code, else as the runtime says.
    :param on_changed_request: What a retry whose settings have changed does with a job that still runs: adopt it, with a warning, or
        replace it.
    :param adopt_finished: Whether a job that has succeeded is taken as the result of another run of the orchestrator with the same
        id.
    :param on_cancel: What to do with the job when its step is cancelled, exceeds a deadline or stops waiting: suspend, delete or
        keep it.
    :param waiter_lease_seconds: Seconds after which a job whose waiting step is gone may be suspended, by a controller of
        Trainwright or a later step of its run; at least 30. 0: never.
    :param store_secret: Secret with object store credentials (AWS_ACCESS_KEY_ID ...), for datasets, models and exports to resume
        from.
    :param hub_secret: Secret with the key HF_TOKEN, for datasets, models and the training program.
    :param dataset_secret: Secret whose keys become environment variables of the dataset initializer.
    :param model_secret: Secret whose keys become environment variables of the model initializer.
    :param resume_secret: Secret with credentials for reading exports to resume from. Defaults to store_secret.
    :param more: Further settings by name, as StartRunOperator returns them for the training.
    :param run_id: id of the run, which names its folder, its exports and its TrainJobs; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the TrainJob; defaults to the manifest's, else the connection's.
    :param submission_mode: auto, trainjob or jobset; defaults to the connection's.
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
    :param log_poll_interval: seconds between two polls of the log while the task is deferred; 0 disables polling.
    :param min_defer_seconds: minimum time between deferral and event; below 10, Airflow 3.3 may fail the task.
    :return: trainjob, namespace, metrics, results (return value of a function, or results.json), folder (in the workspace). Without
        waiting: trainjob, namespace, uid, submission_mode, folder, has_results.
    """

    template_fields = (*TEMPLATED, *OWN_TEMPLATED)
    template_fields_renderers = {"settings": "json", "env": "json", "func_args": "json", "manifest": "yaml"}

    def __init__(
        self,
        *,
        # Written by `make edges` from TrainRequest.
        runtime: str = "",
        runtime_kind: str = "ClusterTrainingRuntime",
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
        annotations: dict[str, Any] | str | None = None,
        runtime_patches: list[Any] | str | None = None,
        dataset_uri: str = "",
        metadata_loc: str = "",
        num_data_nodes: int | str | None = None,
        worker_mem: str = "",
        dataset_digest: str = "",
        dataset_env: dict[str, Any] | str | None = None,
        model_uri: str = "",
        model_digest: str = "",
        model_env: dict[str, Any] | str | None = None,
        model_shape: dict[str, Any] | str | None = None,
        workspace: str = "",
        queue_name: str = "",
        priority_class: str = "",
        topology: str = "",
        node_selector: dict[str, Any] | str | None = None,
        tolerations: list[Any] | str | None = None,
        affinity: dict[str, Any] | str | None = None,
        memory_check: str = "warn",
        volumes: list[Any] | str | None = None,
        volume_mounts: list[Any] | str | None = None,
        queue_timeout_seconds: int | str | timedelta | None = None,
        start_timeout_seconds: int | str | timedelta = 21600,
        run_timeout_seconds: int | str | timedelta | None = None,
        fail_if_stuck: bool | str = True,
        fail_on_divergence: bool | str = True,
        lost_node_timeout_seconds: int | str | timedelta | None = None,
        logs: str = "0",
        log_bytes: int | str = 16777216,
        resume: str = "auto",
        export_uri: str = "",
        previous_jobs: str = "keep",
        preemption_budget: int | str = 3,
        restarts: int | str | None = None,
        on_changed_request: str = "adopt",
        adopt_finished: bool | str = False,
        on_cancel: str = "suspend",
        waiter_lease_seconds: int | str | timedelta = 1800,
        store_secret: str = "",
        hub_secret: str = "",
        dataset_secret: str = "",
        model_secret: str = "",
        resume_secret: str = "",
        # End of what `make edges` writes.
        more: dict[str, Any] | str | None = None,
        run_id: str = "",
        namespace: str = "",
        submission_mode: str = "",
        conn_id: str | None = None,
        store_conn_id: str | None = None,
        hub_conn_id: str | None = None,
        tracking: list[Any] | str | None = None,
        workspace_path: str = "",
        wait_for_completion: bool = True,
        durable: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        log_poll_interval: float | timedelta = LOG_POLL_INTERVAL_SECONDS,
        min_defer_seconds: float | timedelta = MIN_DEFER_SECONDS,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from TrainRequest.
        self.runtime = runtime
        self.runtime_kind = runtime_kind
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
        self.annotations = annotations
        self.runtime_patches = runtime_patches
        self.dataset_uri = dataset_uri
        self.metadata_loc = metadata_loc
        self.num_data_nodes = num_data_nodes
        self.worker_mem = worker_mem
        self.dataset_digest = dataset_digest
        self.dataset_env = dataset_env
        self.model_uri = model_uri
        self.model_digest = model_digest
        self.model_env = model_env
        self.model_shape = model_shape
        self.workspace = workspace
        self.queue_name = queue_name
        self.priority_class = priority_class
        self.topology = topology
        self.node_selector = node_selector
        self.tolerations = tolerations
        self.affinity = affinity
        self.memory_check = memory_check
        self.volumes = volumes
        self.volume_mounts = volume_mounts
        self.queue_timeout_seconds = queue_timeout_seconds
        self.start_timeout_seconds = start_timeout_seconds
        self.run_timeout_seconds = run_timeout_seconds
        self.fail_if_stuck = fail_if_stuck
        self.fail_on_divergence = fail_on_divergence
        self.lost_node_timeout_seconds = lost_node_timeout_seconds
        self.logs = logs
        self.log_bytes = log_bytes
        self.resume = resume
        self.export_uri = export_uri
        self.previous_jobs = previous_jobs
        self.preemption_budget = preemption_budget
        self.restarts = restarts
        self.on_changed_request = on_changed_request
        self.adopt_finished = adopt_finished
        self.on_cancel = on_cancel
        self.waiter_lease_seconds = waiter_lease_seconds
        self.store_secret = store_secret
        self.hub_secret = hub_secret
        self.dataset_secret = dataset_secret
        self.model_secret = model_secret
        self.resume_secret = resume_secret
        # End of what `make edges` writes.
        self.more = more
        reject_literal_secrets({name: getattr(self, name) for name in SETTINGS})
        self.run_id, self.namespace, self.submission_mode, self.conn_id = run_id, namespace, submission_mode, conn_id
        self.store_conn_id, self.hub_conn_id = store_conn_id, hub_conn_id
        self.tracking, self.workspace_path = tracking, workspace_path
        self.wait_for_completion, self.durable = wait_for_completion, durable
        self.deferrable = deferrable
        self.log_poll_interval = parse_number("log_poll_interval", log_poll_interval)
        self.min_defer_seconds = parse_number("min_defer_seconds", min_defer_seconds)
        if func is not None and not kwargs.get("_airflow_mapped_validation_only"):
            check_arguments(func, self._arguments_of_call(func_args))
        self._templated_arguments = templated_arguments(self._arguments_of_call(func_args))
        if "{{" not in on_cancel and on_cancel not in ("suspend", "delete", "keep"):
            raise ValueError(f"on_cancel={on_cancel!r}: expected suspend, delete or keep")

    @fail_fast()
    def execute(self, context: Context) -> Any:
        from trainwright.jobs import Waiting, run_step
        from trainwright.jobs.wait.stop_event import stop_on_signals
        from trainwright.operators.values.allowed_places import check_places
        from trainwright.steps.row_trainer import check_prepared_rows

        self._take_more()
        begin_links(self)
        check_places((self.conn_id, self.store_conn_id, self.hub_conn_id), **{name: getattr(self, name) for name in PLACES})
        check_tracking(self)
        request, identity = self.request(), self._identity(context)
        check_prepared_rows(request, self.workspace_path)
        cluster = self._cluster()
        namespace = self._namespace(cluster, request)
        if not self.durable and int(context["ti"].try_number) > 1:
            cancellation.stop_previous_try(cluster, identity, namespace, self.on_cancel)
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
        self._take_more()
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
        self._take_more()
        return super().resume_execution(next_method, next_kwargs, context)

    def _take_more(self) -> None:
        """Make settings of what `more` has. Raises ValueError for one that is unknown, or given twice."""
        from trainwright.jobs.request.more_settings import with_more

        defaults = {name: setting.default for name, setting in TABLE.items()}
        for name, value in with_more({name: getattr(self, name) for name in SETTINGS}, self.more, defaults).items():
            setattr(self, name, value)
        self.more = None

    def _forget_credentials(self, context: Context, event: dict[str, Any]) -> None:
        from trainwright.jobs.submit.step_credentials import delete_credentials

        if self.store_conn_id or self.hub_conn_id:
            identity = task_identity(context, self.run_id)
            delete_credentials(self._cluster(event.get("submission_mode") or ""), identity, event["namespace"])

    def dry_run(self) -> None:
        """Print the TrainJob that would be submitted, and the objects that are built from it, as YAML. Creates nothing.

        Without a cluster, bundled runtimes are used. The id of the run is `run_id`, else dry-run. Raises the errors of an invalid
        request, PlaceNotAllowed, and RuntimeNotFound if neither the cluster nor the bundled ones have the runtime.
        """
        from trainwright.operators.jobs.dry_run import preview_task

        self._take_more()
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
        from trainwright.jobs import LogStreamOptions
        from trainwright.jobs.logs.poll_logs import PolledLogs
        from trainwright.jobs.logs.shown_log import shown_until
        from trainwright.jobs.wait.event_printer import format_log_line, is_shown

        request = self.request()
        if (options := LogStreamOptions.parse(request.logs, request.log_bytes)) is not None and self.log_poll_interval > 0:
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

        if not isinstance(failure, Preempted) or not (budget := self.request().preemption_budget):
            raise failure
        with stop_on_signals() as stop:
            if not wait_to_resume(cluster, failure, budget, stop):
                raise Cancelled("the task was ended while it waited to resume a preempted job; no job is running") from failure
            return self._submit_and_defer(context, cluster, stop, until)

    def _find_job(self, context: Context) -> tuple[JobsClient, dict[str, Any]] | None:
        from trainwright.jobs.submit.job_lookup import find_job

        cluster = self._cluster()
        return find_job(cluster, task_identity(context, self.run_id), self._namespace(cluster, self.request()))

    def _wait_in_worker(self, context: Context, cluster: JobsClient, trainjob: dict[str, Any]) -> Any:
        from trainwright.jobs import Waiting
        from trainwright.jobs.wait.run_to_end import follow_to_end

        printer = self._event_printer()
        waiting = Waiting.of(self.request(), printer, on_signal=self._on_signal(context))
        ended = follow_to_end(cluster, trainjob, waiting, resubmit=partial(self._submit, context, cluster))
        return self._result(context, cluster, ended, dict(printer.progress.metrics) if printer.progress else None)

    def _submit(self, context: Context, cluster: JobsClient) -> Submitted:
        from trainwright.jobs import submit_or_adopt

        submission = self._submission(cluster, self.request(), self._identity(context))
        submitted = submit_or_adopt(submission, waiter_lease_seconds=self._lease_seconds())
        report_submitted(self, context, submitted)
        return submitted

    def _defer(self, context: Context, trainjob: dict[str, Any], until: float | None, mode: str) -> NoReturn:
        """`until` is the end of the task's execution_timeout, in seconds since the epoch. Raises TaskDeferred."""
        lease = self._lease_seconds()
        self._wait_in_triggerer(context, trainjob, self.request(), until=until, mode=mode, lease_seconds=lease)

    def _arguments_of_call(self, func_args: Any) -> Any:
        """The arguments of the function, by name, as the DAG gives them; text for a template of all of them."""
        return {} if func_args is None else func_args

    def request(self) -> TrainRequest:
        """The settings as a validated `trainwright.jobs.TrainRequest`. Raises pydantic's ValidationError, LiteralSecret."""
        from trainwright.jobs import TrainRequest

        check_rendered(self.func, self.func_args, self._templated_arguments)
        return TrainRequest.from_parameters({name: getattr(self, name) for name in SETTINGS})

    def _identity(self, context: Context) -> Identity:
        """The identity of the task, as its TrainJob notes it."""
        return task_identity(context, self.run_id, on_cancel=self.on_cancel if self.wait_for_completion else "keep")

    def _namespace(self, cluster: JobsClient, request: TrainRequest) -> str:
        return self.namespace or request.namespace or cluster.default_namespace

    def _on_signal(self, context: Context) -> Any:
        return cancellation.on_signal(context, self.on_cancel, durable=self.durable)

    def _submission(self, cluster: JobsClient, request: TrainRequest, identity: Identity) -> Submission:
        """The submission, with the run's latest export and the credentials of the task's connections."""
        from trainwright.jobs import Submission

        namespace, latest = self._namespace(cluster, request), self._latest_export if self.export_uri else None
        found = step_credentials(self.store_conn_id, self.hub_conn_id)
        return Submission(cluster, request, identity, namespace, latest, credentials=found)

    def _lease_seconds(self) -> int:
        """The length of the lease on the job; 0 without one, as where nobody waits."""
        from trainwright.jobs.wait.waiting import waiter_options_of

        return waiter_options_of(self.request(), suspends_at_once=False).lease_seconds if self.wait_for_completion else 0

    def _latest_export(self, identity: Identity) -> str:
        """The URI of the run's latest export, read with the credentials of the connections; empty if there is none."""
        from trainwright.checkpoints.resume_source import latest_export_lookup

        with credentials(self.store_conn_id, self.hub_conn_id):
            return latest_export_lookup(self.export_uri)(identity)

    def _result(
        self, context: Context, cluster: JobsClient, trainjob: dict[str, Any], metrics: dict[str, str] | None = None
    ) -> Any:
        from trainwright.jobs.wait.run_step import result_of

        return self._done(context, result_of(cluster, trainjob, self.request(), metrics))

    def _has_results(self) -> bool:
        request = self.request()
        return request.func is not None or bool(request.code)

    def _observe_logged(self, trainjob: dict[str, Any], entries: Iterable[Mapping[str, float]]) -> None:
        from trainwright.jobs.wait.job_events import Logged

        if entries and (tracker := vars(self).get("_tracker")) is not None:
            tracker.begin(trainjob)
            tracker((Logged(tuple(entries)),))

    def _fails_on_divergence(self) -> bool:
        return bool(self.request().fail_on_divergence)

    def _folder(self, context: Context) -> str:
        return task_identity(context, self.run_id).folder if self.workspace else ""

    def _reference(self, submitted: Submitted) -> JobReference:
        from trainwright.jobs.state.run_folder import folder_of_job

        metadata = submitted.trainjob["metadata"]
        place = metadata["namespace"], metadata["uid"], str(submitted.cluster.mode)
        return JobReference(metadata["name"], *place, folder_of_job(submitted.trainjob), self._has_results())
