"""Register an export in the Hugging Face Hub, the Kubeflow Model Registry, or MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast, reject_unusable_exports
from trainwright.operators.values.connections import credentials
from trainwright.operators.values.given_parameters import TextTemplates

if TYPE_CHECKING:
    from airflow.sdk import Context


class RegisterModelOperator(TextTemplates, BaseOperator):
    """Register an export. A registration that was interrupted is completed by the retry; a second one returns the first.

    The Hub gets a copy of the model with a model card; the other registries refer to the export, which is pinned. MLFLOW_* and
    MODEL_REGISTRY_* are read from the worker's environment; see docs/registries.md.

    :param checkpoint_uri: Export to register.
    :param checkpoint_digest: Digest of its manifest; any other content is rejected.
    :param registry: hf://org/name[@branch], model-registry://host[:port]/model, or mlflow://model.
    :param name: The model, if registry does not name it.
    :param version: Name of the version; a tag in the Hub. Not for MLflow.
    :param alias: Tag (Hub) or alias (MLflow) that is moved to the version, last.
    :param with_training_state: Whether to upload optimizer and random states too. Hub only.
    :param log_run: Whether to log the training metrics as a run. MLflow only.
    :param base_model: org/name of the fine-tuned model, for the model card.
    :param datasets: org/name of datasets, for the model card.
    :param run: the run, as StartRunOperator returns it, with further settings of the registration and the connection of the hub.
    :param workspace_path: where the workspace is mounted in the worker, if it is: MLflow without MLFLOW_TRACKING_URI keeps its
        models in tracking/mlflow.db in it.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :param hub_conn_id: connection with a token for the hub as its password.
    :return: uri (where the registry has it), version, existed (whether an earlier registration was complete).
    """

    template_fields = (
        # Written by `make edges` from RegisterModel.
        *("checkpoint_uri", "checkpoint_digest", "registry", "name", "version", "alias"),
        *("with_training_state", "log_run", "base_model", "datasets"),
        # End of what `make edges` writes.
        "run",
        "workspace_path",
        "store_conn_id",
        "hub_conn_id",
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from RegisterModel.
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
        # End of what `make edges` writes.
        run: dict[str, Any] | str | None = None,
        workspace_path: str = "",
        store_conn_id: str | None = None,
        hub_conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from RegisterModel.
        self.checkpoint_uri = checkpoint_uri
        self.checkpoint_digest = checkpoint_digest
        self.registry = registry
        self.name = name
        self.version = version
        self.alias = alias
        self.with_training_state = with_training_state
        self.log_run = log_run
        self.base_model = base_model
        self.datasets = datasets
        # End of what `make edges` writes.
        self.run = run
        self.workspace_path, self.store_conn_id, self.hub_conn_id = workspace_path, store_conn_id, hub_conn_id
        self.check_values(vars(self))

    @fail_fast()
    @reject_unusable_exports()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.operators.values.allowed_places import check_places, places_given
        from trainwright.operators.values.given_run import asked
        from trainwright.steps.promotion.register import register_run_export
        from trainwright.steps.requests import RegisterModel, Run

        run = Run.of_step(self.run)
        hub = self.hub_conn_id or run.hub_conn_id or None
        request = asked(
            RegisterModel,
            {
                # Written by `make edges` from RegisterModel.
                "checkpoint_uri": self.checkpoint_uri,
                "checkpoint_digest": self.checkpoint_digest,
                "registry": self.registry,
                "name": self.name,
                "version": self.version,
                "alias": self.alias,
                "with_training_state": self.with_training_state,
                "log_run": self.log_run,
                "base_model": self.base_model,
                "datasets": self.datasets,
                # End of what `make edges` writes.
            },
            run.registration,
        )
        places = places_given(request.given_values(), RegisterModel)
        check_places((self.store_conn_id, hub), workspace_path=self.workspace_path, **places)
        with credentials(self.store_conn_id, hub):
            registration = register_run_export(
                request,
                folder=Path(self.workspace_path) / "tracking" if self.workspace_path else None,
                on_line=lambda line: self.log.info("%s", line),
            )
        found = "found" if registration.existed else "registered"
        self.log.info("%s %s, version %s", found, registration.uri, registration.version)
        return {"uri": registration.uri, "version": registration.version, "existed": registration.existed}
