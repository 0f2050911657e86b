"""Read which export is the champion, and whether there are new data to train on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast, reject_unusable_exports
from trainwright.operators.workspace_operator import ExportsOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReadChampionOperator(ExportsOperator):
    """Say whether a training on other data or another base model could replace the export that an alias names. Changes nothing.

    :param export_uri: Folder of all exports, as for the export of a checkpoint.
    :param dataset_digest: Digest of the prepared dataset, compared with that of the champion's.
    :param model_digest: Digest of the prepared base model. Empty: not compared.
    :param always_train: Retrain even if the champion is up to date, or the same training was kept out: `state` is then outdated.
    :param warm_start: Whether a training is to start from its weights, if it has the same base model.
    :param alias: champion, challenger, or another name.
    :param training: Settings of the training that is asked about: `state` is current if the same was trained, and not promoted in
        place of this champion. Not of code or a function, of which it is not known what they have become.
    :param run: the run, as StartRunOperator returns it: its id, its workspace, where it is done, and further settings of this task.
    :param workspace: claim with the exports, pvc://CLAIM[/FOLDER], for `file:///trainwright-workspace/...`: if the worker does not see
        them, a pod that mounts the claim does this.
    :param workspace_path: not used.
    :param runs_on: auto, or worker for no pod.
    :param job: settings of the pod, as in InitializeDatasetOperator.
    :param run_id: not used.
    :param namespace: namespace of the pod; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes` for the pod; None uses the environment.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :param hub_conn_id: not used.
    :return: state (current if there is nothing to train, because the champion was trained on these data or the same training was
        not promoted, and the reason; else none without a champion, or outdated), uri and digest of the export, training_digest,
        dataset_digest and model_digest of what it was trained on; empty without a champion, or where its manifest has none; start_from
        (`resume` of the training).
    """

    template_fields = (
        # Written by `make edges` from ReadChampion.
        *("export_uri", "dataset_digest", "model_digest", "always_train", "warm_start", "alias"),
        *("training",),
        # End of what `make edges` writes.
        *ExportsOperator.template_fields,
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from ReadChampion.
        export_uri: str,
        dataset_digest: str = "",
        model_digest: str = "",
        always_train: bool | str = False,
        warm_start: bool | str = False,
        alias: str = "champion",
        training: dict[str, Any] | str | None = None,
        # End of what `make edges` writes.
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from ReadChampion.
        self.export_uri = export_uri
        self.dataset_digest = dataset_digest
        self.model_digest = model_digest
        self.always_train = always_train
        self.warm_start = warm_start
        self.alias = alias
        self.training = training
        # End of what `make edges` writes.
        self.check_values(vars(self))

    @fail_fast()
    @reject_unusable_exports()
    def execute(self, context: Context) -> dict[str, str]:
        from trainwright.steps.requests import ReadChampion

        of_run = self.of_run()
        request = self.asked(
            ReadChampion,
            {
                # Written by `make edges` from ReadChampion.
                "export_uri": self.export_uri,
                "dataset_digest": self.dataset_digest,
                "model_digest": self.model_digest,
                "always_train": self.always_train,
                "warm_start": self.warm_start,
                "alias": self.alias,
                "training": self.training,
                # End of what `make edges` writes.
            },
            of_run,
        )
        if "alias" in of_run.promotion.given:
            request = request.having(alias=of_run.promotion.alias)
        if "training" in of_run.given and not request.training:
            request = request.having(training=of_run.training.given_values())
        champion = self.do(request, context, of_run)
        self.log.info("%s: %s (%s)", request.alias, champion["uri"] or "none", champion["reason"] or champion["state"])
        return champion
