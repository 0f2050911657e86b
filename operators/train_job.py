"""Train: a TrainJob, submitted or adopted, followed to its end in the worker."""

from __future__ import annotations

import json
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.task_identity import task_identity


class TrainJobOperator(BaseOperator):
    """Fine-tune in a TrainJob and wait until it has succeeded.

    A retry adopts the job of the try before; clearing the task starts a new one. A task that is killed, marked failed or
    out of time suspends its job: nothing keeps running, and the next try goes on from the last whole checkpoint.

    :param workspace: pvc://CLAIM or pvc://CLAIM/FOLDER, the volume that initializers, nodes and exporter share.
    :param dataset_uri: as given to InitializeDatasetOperator.
    :param model_uri: as given to InitializeModelOperator.
    :param runtime: a ClusterTrainingRuntime with the steps of trl-sft.
    :param settings: training settings, as a dict or as JSON; see docs/settings.md.
    :param run: names the run in place of the DAG run's id: a DAG run of the same name goes on with its job.
    :param conn_id: a connection of the type `trainwright` or `kubernetes`; None uses the environment.
    :param start_timeout: seconds until the nodes must train; run_timeout: seconds that they may train. None waits.
    :return: trainjob, namespace, metrics.
    """

    template_fields = (
        "workspace",
        "dataset_uri",
        "model_uri",
        "runtime",
        "settings",
        "namespace",
        "run",
        "num_nodes",
        "env",
        "resources_per_node",
    )

    def __init__(
        self,
        *,
        workspace: str,
        dataset_uri: str = "",
        model_uri: str = "",
        runtime: str = "trl-sft",
        settings: dict[str, Any] | str = "{}",
        namespace: str = "",
        run: str = "",
        num_nodes: int | str = 1,
        num_proc_per_node: int | None = None,
        resources_per_node: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        start_timeout: float | None = None,
        run_timeout: float | None = None,
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.workspace, self.dataset_uri, self.model_uri, self.runtime = workspace, dataset_uri, model_uri, runtime
        self.settings, self.namespace, self.run, self.conn_id = settings, namespace, run, conn_id
        self.num_nodes, self.num_proc_per_node = num_nodes, num_proc_per_node
        self.resources_per_node, self.env = resources_per_node or {}, env or {}
        self.start_timeout, self.run_timeout = start_timeout, run_timeout

    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.jobs import Deadlines
        from trainwright.jobs.progress_line import progress_line
        from trainwright.jobs.run import run_to_end

        cluster = TrainwrightHook(self.conn_id).get_conn()
        trainjob = run_to_end(
            cluster,
            self._request(),
            task_identity(context, self.run),
            self.namespace or cluster.default_namespace,
            deadlines=Deadlines(start=self.start_timeout, run=self.run_timeout),
            on_progress=lambda progress: self.log.info("%s", progress_line(progress)),
        )
        reported = (trainjob["status"].get("trainerStatus") or {}).get("metrics") or []
        metadata = trainjob["metadata"]
        metrics = {metric["name"]: metric["value"] for metric in reported}
        return {"trainjob": metadata["name"], "namespace": metadata["namespace"], "metrics": metrics}

    def _request(self) -> Any:
        from trainwright.jobs import TrainRequest
        from trainwright.jobs.sft import SftSettings

        text = self.settings if isinstance(self.settings, str) else json.dumps(self.settings)
        resources = self.resources_per_node
        return TrainRequest(
            runtime=self.runtime,
            dataset_uri=self.dataset_uri,
            model_uri=self.model_uri,
            args=SftSettings.model_validate_json(text).arguments(),
            env=self.env,
            num_nodes=int(self.num_nodes),
            num_proc_per_node=self.num_proc_per_node,
            resources_per_node={"limits": resources, "requests": resources} if resources else {},
            workspace=self.workspace,
            active_deadline_seconds=int(self.run_timeout) if self.run_timeout else None,
        )
