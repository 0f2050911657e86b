"""Buttons of a task in Airflow's web interface: its TrainJob, the logs and the exported checkpoint.

The server reads a link from an XCom, which is pushed as soon as it is known, so that the links of a deferred task work, too.
Airflow stores them again when a worker is done with the task: what this worker does not know, it reads from there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperatorLink

from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.connections import connection_variables, fill_link_template

if TYPE_CHECKING:
    from airflow.sdk import Context


log = logging.getLogger(__name__)
NO_LINKS: Mapping[str, str] = {}
"""The `shown_links` of an operator that has shown none: URLs by the keys of links, as far as this worker knows them."""


class _StoredLink(BaseOperatorLink):
    """A link whose URL was given to `show_job_links` or `show_checkpoint_link`."""

    key: ClassVar[str]
    title: ClassVar[str]

    @property
    def name(self) -> str:
        return self.title

    @property
    def xcom_key(self) -> str:
        return f"trainwright_{self.key}"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The URL, or empty: from the operator in the worker that knows it, else from the XCom of an earlier one."""
        shown = getattr(operator, "shown_links", {})  # a mapped task that has failed has none
        if self.key in shown:
            return str(shown[self.key])
        from airflow.sdk.execution_time.xcom import XCom

        return str(XCom.get_value(ti_key=ti_key, key=self.xcom_key) or "")


class TrainJobLink(_StoredLink):
    """The TrainJob in a dashboard: `trainjob_url` of the connection, else the page on this machine."""

    key, title = "trainjob_link", "TrainJob"


class LogsLink(_StoredLink):
    """The logs of the TrainJob: `logs_url` of the connection, else the page on this machine."""

    key, title = "logs_link", "Logs"


class CheckpointLink(_StoredLink):
    """The export in the console of its store."""

    key, title = "checkpoint_link", "Checkpoint"


def begin_links(operator: Any) -> None:
    """Say that this worker begins the task: what it does not show is not there, and need not be asked for."""
    operator.shown_links = {kind.key: "" for kind in (TrainJobLink, LogsLink, CheckpointLink)}


def show_job_links(operator: Any, context: Context, metadata: dict[str, Any], conn_id: str | None) -> None:
    """Show where the connection's templates, else the page on this machine, lead for the TrainJob with this metadata.

    Logs a failure; a link fails no task.
    """
    from trainwright.operators.reporting.link_urls import page_templates

    names = {name: str(metadata.get(name) or "") for name in ("namespace", "name", "uid")}
    try:
        settings = TrainwrightHook(conn_id).settings()
        job, logs = ("", "") if settings.trainjob_url and settings.logs_url else page_templates(settings)
    except Exception as error:  # a link fails no task
        log.warning("no links: the connection or the page could not be read error=%s", type(error).__name__)
        return
    templates = {TrainJobLink: settings.trainjob_url or job, LogsLink: settings.logs_url or logs}
    _show(operator, context, {kind: fill_link_template(template, **names) for kind, template in templates.items()})


def show_checkpoint_link(operator: Any, context: Context, uri: str, store_conn_id: str | None) -> None:
    """Show where a browser can look at an export, or at the folder of exports of a run. Logs a failure; a link fails no task."""
    if not uri:  # a link that is known to be empty is not asked for
        _show(operator, context, {CheckpointLink: ""})
        return
    from trainwright.operators.reporting.link_urls import browsable_url

    try:
        url = browsable_url(uri, connection_variables(store_conn_id, None))
    except Exception as error:  # a link fails no task
        log.warning("no link: the connection could not be read error=%s", type(error).__name__)
        return
    _show(operator, context, {CheckpointLink: url})


def show_job_name(context: Context, metadata: dict[str, Any]) -> None:
    """Store name and namespace of the TrainJob, so that they are known while the task waits. Logs a failure; it fails no task."""
    for key, value in (("trainjob", metadata.get("name")), ("namespace", metadata.get("namespace"))):
        try:
            context["ti"].xcom_push(key=key, value=str(value or ""))
        except Exception as error:  # the task goes on without it
            log.warning("the name of the job could not be stored key=%s error=%s", key, type(error).__name__)


def _show(operator: Any, context: Context, urls: dict[type[_StoredLink], str]) -> None:
    before, operator.shown_links = operator.shown_links, {**operator.shown_links, **{kind.key: url for kind, url in urls.items()}}
    for kind, url in urls.items():
        if before.get(kind.key, "") == url:  # each push is a request to the API server of Airflow
            continue
        try:
            context["ti"].xcom_push(key=f"trainwright_{kind.key}", value=url)
        except Exception as error:  # a link fails no task
            log.warning("no link: it could not be stored link=%s error=%s", kind.title, type(error).__name__)
