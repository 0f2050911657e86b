"""Submit or adopt a TrainJob, and wait until it ends, in the worker or (deferred) in the triggerer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast
from trainwright.operators.groups import Data, Deferral, Ending, Limits, Logging, Placement, Secrets, check_flat_names
from trainwright.operators.reporting.lineage import TrainJobLineage
from trainwright.operators.reporting.links import begin_links
from trainwright.operators.values.airflow_api import conf
from trainwright.operators.values.given_parameters import check_arguments, check_rendered, templated_arguments
from trainwright.operators.values.rendered_values import deferral_options
from trainwright.operators.waits_for_train_job import WaitsForTrainJob

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.jobs import TrainRequest
    from trainwright.operators.values.given_run import Asked
    from trainwright.operators.waiting.training_task import TrainingTask
    from trainwright.steps.requests import Run


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
    groups = ("placement", "limits", "ending", "logging", "secrets", "data", "deferral")
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
        # With a run, default_args may have settings of StartRunOperator, which has them without a group.
        check_flat_names(self.groups, kwargs if run else {**kwargs, **(kwargs.get("default_args") or {})})
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
        self.check_values({**vars(self), "deferral": deferral})
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

    def enter(self, context: Context) -> TrainingTask:
        """As of the base class. Raises also TypeError for arguments of the call."""
        from trainwright.operators.waiting.training_task import TrainingOptions, TrainingTask

        options = TrainingOptions(
            conn_id=self.conn_id,
            store_conn_id=self.store_conn_id,
            hub_conn_id=self.hub_conn_id,
            tracking=self.tracking,
            workspace_path=self.workspace_path,
            wait_for_completion=self.wait_for_completion,
            durable=self.durable,
            deferrable=self.deferrable,
            min_defer_seconds=self.min_defer_seconds,
            log_poll_interval=self.log_poll_interval,
            xcom_value=self.xcom_value,
        )
        self.entry = TrainingTask(self, context, options, self.asked())
        return self.entry

    @fail_fast()
    def execute(self, context: Context) -> Any:
        from trainwright.operators.values.allowed_places import check_places, places_given

        begin_links(self)
        # Before anything is read: a manifest may be a file of this worker.
        check_places((self.conn_id, self.store_conn_id, self.hub_conn_id), **places_given(self._values()))
        return self.enter(context).run()

    def dry_run(self) -> None:
        """Print the TrainJob that would be submitted, and the objects that are built from it, as YAML. Creates nothing.

        Without a cluster, bundled runtimes are used. The id of the run is `run_id`, else dry-run. Raises the errors of an invalid
        request, PlaceNotAllowed, and RuntimeNotFound if neither the cluster nor the bundled ones have the runtime.
        """
        from trainwright.operators.waiting.dry_run import preview_task

        print(preview_task(self), end="")

    def asked(self) -> Asked:
        """The settings, which are rendered now, and the run. Raises InvalidSettings, LiteralSecret, TypeError as `request`."""
        from trainwright.operators.values.given_run import Asked
        from trainwright.steps.requests import Run

        run = Run.of_step(self.run, run_id=self.run_id, namespace=self.namespace)
        run = run.having(workspace_path=self.workspace_path)  # the run's is that of tasks on files
        return Asked(self.request(run), run)

    def request(self, run: Run | None = None) -> TrainRequest:
        """The settings as a validated `trainwright.jobs.TrainRequest`, with those that its run has for it.

        Raises InvalidSettings, LiteralSecret.
        """
        from trainwright.operators.values.given_run import asked_training

        check_rendered(self.func, self.func_args, self._templated_arguments)
        return asked_training(self._values(), run)

    def _arguments_of_call(self, func_args: Any) -> Any:
        """The arguments of the function, by name, as the DAG gives them; text for a template of all of them."""
        return {} if func_args is None else func_args
