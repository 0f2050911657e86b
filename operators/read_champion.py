"""Read which export is the champion, and whether there are new data to train on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast
from trainwright.operators.jobs.export_errors import reject_unusable_exports
from trainwright.operators.values.credentials import credentials
from trainwright.operators.values.rendered_values import parse_flag

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReadChampionOperator(BaseOperator):
    """Say whether a training on other data or another base model could replace the export that an alias names. Changes nothing.

    :param export_uri: folder of all exports, as for ExportCheckpointOperator.
    :param dataset_digest: digest of the prepared dataset, compared with that of the champion's.
    :param model_digest: digest of the prepared base model. Empty: not compared.
    :param always: whether it counts as outdated in any case.
    :param alias: champion, challenger, or another name.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :return: state (none without a champion, outdated if it was trained on other data, else current), uri and digest of the export,
        dataset_digest and model_digest of what it was trained on; empty without a champion, or where its manifest has none.
    """

    template_fields = ("export_uri", "dataset_digest", "model_digest", "always", "alias", "store_conn_id")

    def __init__(
        self,
        *,
        export_uri: str,
        dataset_digest: str = "",
        model_digest: str = "",
        always: bool | str = False,
        alias: str = "champion",
        store_conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.export_uri, self.alias, self.always = export_uri, alias, always
        self.dataset_digest, self.model_digest, self.store_conn_id = dataset_digest, model_digest, store_conn_id

    @fail_fast()
    @reject_unusable_exports()
    def execute(self, context: Context) -> dict[str, str]:
        from trainwright.operators.values.allowed_places import check_places
        from trainwright.steps.champion import read_champion

        check_places((self.store_conn_id,), export_uri=self.export_uri)
        always = parse_flag("always", self.always)
        with credentials(self.store_conn_id, None):
            champion = read_champion(self.export_uri, self.alias)
        state = champion.state(self.dataset_digest, self.model_digest, always=always)
        self.log.info("%s: %s (%s)", self.alias, champion.uri or "none", state)
        return {"state": state, **asdict(champion)}
