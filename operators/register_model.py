"""Register an export in the Hugging Face Hub, the Kubeflow Model Registry, or MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast
from trainwright.operators.jobs.export_errors import reject_unusable_exports
from trainwright.operators.values.credentials import credentials
from trainwright.operators.values.rendered_values import parse_flag, parse_texts

if TYPE_CHECKING:
    from airflow.sdk import Context


class RegisterModelOperator(BaseOperator):
    """Register an export. A registration that was interrupted is completed by the retry; a second one returns the first.

    The Hub gets a copy of the model with a model card; the other registries refer to the export, which is pinned. MLFLOW_* and
    MODEL_REGISTRY_* are read from the worker's environment; see docs/registries.md.

    :param checkpoint_uri: export to register.
    :param checkpoint_digest: digest of its manifest; any other content is rejected.
    :param registry: hf://org/name[@branch], model-registry://host[:port]/model, or mlflow://model.
    :param name: the model, if registry does not name it.
    :param version: name of the version; a tag in the Hub. Not for MLflow.
    :param alias: tag (Hub) or alias (MLflow) that is moved to the version, last.
    :param with_training_state: also upload optimizer and random states. Hub only.
    :param log_run: log the training metrics as a run. MLflow only.
    :param base_model: org/name of the fine-tuned model, for the model card.
    :param datasets: org/name of datasets, for the model card.
    :param workspace_path: where the workspace is mounted in the worker, if it is: MLflow without MLFLOW_TRACKING_URI keeps its
        models in tracking/mlflow.db in it.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :param hub_conn_id: connection with a token for the hub as its password.
    :return: uri (where the registry has it), version, existed (whether an earlier registration was complete).
    """

    template_fields = (
        "checkpoint_uri",
        "checkpoint_digest",
        "registry",
        "name",
        "version",
        "alias",
        "with_training_state",
        "log_run",
        "base_model",
        "datasets",
        "workspace_path",
        "store_conn_id",
        "hub_conn_id",
    )

    def __init__(
        self,
        *,
        checkpoint_uri: str,
        checkpoint_digest: str,
        registry: str,
        name: str = "",
        version: str = "",
        alias: str = "",
        with_training_state: bool | str = False,
        log_run: bool | str = False,
        base_model: str = "",
        datasets: list[Any] | str | None = None,
        workspace_path: str = "",
        store_conn_id: str | None = None,
        hub_conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.checkpoint_uri, self.checkpoint_digest, self.registry = checkpoint_uri, checkpoint_digest, registry
        self.name, self.version, self.alias, self.base_model = name, version, alias, base_model
        self.with_training_state, self.log_run, self.datasets = with_training_state, log_run, datasets
        self.workspace_path, self.store_conn_id, self.hub_conn_id = workspace_path, store_conn_id, hub_conn_id

    @fail_fast()
    @reject_unusable_exports()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.operators.values.allowed_places import check_places
        from trainwright.steps.register import register_run_export

        check_places(
            (self.store_conn_id, self.hub_conn_id),
            checkpoint_uri=self.checkpoint_uri,
            registry=self.registry,
            workspace_path=self.workspace_path,
        )
        options = {
            "version": self.version,
            "alias": self.alias,
            "training_state": parse_flag("with_training_state", self.with_training_state),
            "log_run": parse_flag("log_run", self.log_run),
            "base_model": self.base_model,
            "datasets": parse_texts("datasets", self.datasets),
        }
        with credentials(self.store_conn_id, self.hub_conn_id):
            registration = register_run_export(
                self.checkpoint_uri,
                self.registry,
                name=self.name,
                digest=self.checkpoint_digest,
                options=options,
                folder=Path(self.workspace_path) / "tracking" if self.workspace_path else None,
                on_line=lambda line: self.log.info("%s", line),
            )
        found = "found" if registration.existed else "registered"
        self.log.info("%s %s, version %s", found, registration.uri, registration.version)
        return {"uri": registration.uri, "version": registration.version, "existed": registration.existed}
