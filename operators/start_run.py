"""Start a run, and create its workspace if it does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.given_parameters import TextTemplates, check_arguments, check_rendered, templated_arguments
from trainwright.operators.values.task_identity import run_of_group, task_identity
from trainwright.operators.workspace_operator import CLUSTER, WORKER

if TYPE_CHECKING:
    from airflow.sdk import Context


class StartRunOperator(TextTemplates, BaseOperator):
    """Set the id of a run, check the settings of all its tasks, and create its workspace if necessary, before any task uses it.

    `training`, `data` and `evaluation` take any setting of those tasks by its name. The settings of the run as a whole are among those
    of the training: run_id, namespace, submission_mode, workspace_path, runs_on, job and hub_conn_id. The result is for the
    parameter `run` of the other operators.

    :param workspace: Claim that the steps of a run share: its name, pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create it.
        With several nodes it must be ReadWriteMany.
    :param num_nodes: Number of nodes. 0: the runtime's, usually 1.
    :param resources_per_node: Resources of each node. Empty: the runtime's; a GPU must be asked for.
    :param queue_name: Kueue LocalQueue that the jobs wait in. Empty: they start at once.
    :param method: lora, qlora with a base model in 4 bits, or full to train all weights. Empty: the trainer's default (sft: lora).
    :param runtime: Training runtime. Empty: trl-sft for supervised fine-tuning, or that of training.builtin.
    :param epochs: Passes over the training rows. 0: the trainer's default (sft: 1).
    :param learning_rate: Learning rate. 0: the trainer's default (sft: 2e-4).
    :param batch_size: Rows per step and process. 0: the trainer's default (sft: 8).
    :param max_length: Tokens of a row; longer ones are cut. 0: the trainer's default (sft: 1024).
    :param training: Any other setting of the training and its run by name, see docs/reference/parameters.md.
    :param data: Any other setting of the preparation of data by name.
    :param evaluation: Any other setting of export, evaluation, promotion and registration by name.
    :param defaults: Settings of export and evaluation that hold unless `evaluation` has others.
    :param export_uri: Folder of exported checkpoints, refused if later steps do not see it. Empty: not checked.
    :param registry: Registry of a later step, which must see the exports. Empty: none.
    :param store_secret: Secret with credentials of the object store, for the pods of the training.
    :param hub_secret: Secret with HF_TOKEN, for the pods of training and evaluation.
    :param preprocesses: Whether a step preprocesses the data, whose settings `data` may have.
    :param workspace_path: where the claim is mounted in the workers; empty if it is not.
    :param run_id: id of the run; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the claim; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :return: the run, with its given values: run_id, claim, workspace, workspace_path (in the workers, empty if they do not mount
        it), namespace, submission_mode ..., and the settings of each task: training, data, export, evaluation ...
    """

    template_fields = (
        # Written by `make edges` from StartRun.
        *("workspace", "num_nodes", "resources_per_node", "queue_name", "method", "runtime", "epochs"),
        *("learning_rate", "batch_size", "max_length", "training", "data", "evaluation", "defaults"),
        *("export_uri", "registry", "store_secret", "hub_secret", "preprocesses"),
        # End of what `make edges` writes.
        "workspace_path",
        "run_id",
        "namespace",
        "conn_id",
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from StartRun.
        workspace: str,
        num_nodes: int | str = 0,
        resources_per_node: dict[str, Any] | str | None = None,
        queue_name: str = "",
        method: str = "",
        runtime: str = "",
        epochs: float | str = 0.0,
        learning_rate: float | str = 0.0,
        batch_size: int | str = 0,
        max_length: int | str = 0,
        training: dict[str, Any] | str | None = None,
        data: dict[str, Any] | str | None = None,
        evaluation: dict[str, Any] | str | None = None,
        defaults: dict[str, Any] | str | None = None,
        export_uri: str = "",
        registry: str = "",
        store_secret: str = "",
        hub_secret: str = "",
        preprocesses: bool | str = False,
        # End of what `make edges` writes.
        workspace_path: str = "",
        run_id: str = "",
        namespace: str = "",
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from StartRun.
        self.workspace = workspace
        self.num_nodes = num_nodes
        self.resources_per_node = resources_per_node
        self.queue_name = queue_name
        self.method = method
        self.runtime = runtime
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_length = max_length
        self.training = training
        self.data = data
        self.evaluation = evaluation
        self.defaults = defaults
        self.export_uri = export_uri
        self.registry = registry
        self.store_secret = store_secret
        self.hub_secret = hub_secret
        self.preprocesses = preprocesses
        # End of what `make edges` writes.
        self.workspace_path, self.run_id, self.namespace, self.conn_id = workspace_path, run_id, namespace, conn_id
        self.training = _with_source(training)
        self._templated_arguments = templated_arguments(training.get("func_args") if isinstance(training, dict) else None)
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.operators.values.allowed_places import check_places, places_given
        from trainwright.operators.values.given_run import asked, refuse_settings_of_pipelines
        from trainwright.steps.on_cluster import MOUNT
        from trainwright.steps.phases import phases_of
        from trainwright.steps.requests import Run, RunPlace, StartRun
        from trainwright.steps.start import check_exports, start_run

        if isinstance(self.training, dict):
            check_rendered(self.training.get("func"), self.training.get("func_args"), self._templated_arguments)
        request = asked(
            StartRun,
            {
                # Written by `make edges` from StartRun.
                "workspace": self.workspace,
                "num_nodes": self.num_nodes,
                "resources_per_node": self.resources_per_node,
                "queue_name": self.queue_name,
                "method": self.method,
                "runtime": self.runtime,
                "epochs": self.epochs,
                "learning_rate": self.learning_rate,
                "batch_size": self.batch_size,
                "max_length": self.max_length,
                "training": self.training,
                "data": self.data,
                "evaluation": self.evaluation,
                "defaults": self.defaults,
                "export_uri": self.export_uri,
                "registry": self.registry,
                "store_secret": self.store_secret,
                "hub_secret": self.hub_secret,
                "preprocesses": self.preprocesses,
                # End of what `make edges` writes.
            },
        )
        check_places((self.conn_id,), **places_given(request.training))  # before its manifest is read, which may be a file
        place = RunPlace.parse({"run_id": self.run_id, "workspace_path": self.workspace_path, "namespace": self.namespace})
        run = phases_of(request, place)
        refuse_settings_of_pipelines(run.training, "training.")
        check_places((self.conn_id,), **places_given(request.given_values(), StartRun))
        check_places((self.conn_id,), **places_given(run.given_values(), Run))
        cluster = TrainwrightHook(self.conn_id).get_conn()
        identity = task_identity(context, run.run_id or run_of_group(context))
        started = start_run(
            cluster,
            request.workspace,
            owner=identity.owner,
            run_id=identity.run,
            namespace=run.namespace or cluster.default_namespace,
            workspace_path=run.workspace_path,
            num_nodes=run.training.num_nodes or 1,
        )
        check_exports(
            request.export_uri,
            pods_mount="" if run.runs_on == WORKER or (started.path and run.runs_on != CLUSTER) else MOUNT,
            needed_here=bool(request.registry or int(run.own.get("keep_exports") or 0)),
        )
        run = run.having(run_id=started.run_id, claim=started.claim, workspace=started.workspace, workspace_path=started.path)
        return run.given_values()


def _with_source(training: Any) -> Any:
    """The settings with the source of a function of the DAG in its place, which can be a result of a task, and its arguments as JSON.

    Raises ValueError for arguments that do not fit.
    """
    # A template, or a training without a function of the DAG.
    if not isinstance(training, dict) or not callable(training.get("func")):
        return training
    from trainwright.jobs.code.function_source import source_of

    found = source_of(training["func"])
    assert found is not None
    arguments = check_arguments(found, training.get("func_args") or {})
    return {**training, "func": found.source, **({"func_args": arguments} if arguments else {})}
