"""What a task tells Airflow about its TrainJob: links when it is submitted, metrics when it is submitted and when it has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainwright.operators.reporting import stats
from trainwright.operators.reporting.asset_events import describe_outlets
from trainwright.operators.reporting.lineage import workspace_uri
from trainwright.operators.reporting.links import show_checkpoint_link, show_job_links, show_job_name

if TYPE_CHECKING:
    from airflow.sdk import Context


def report_submitted(operator: Any, context: Context, submitted: Any) -> None:
    """Count a submitted or adopted job (`trainwright.jobs.submit.submit_or_adopt.Submitted`), and show its name and its links."""
    stats.count("adopted" if submitted.adopted else "submitted")
    show_job_name(context, submitted.trainjob["metadata"])
    show_job_links(operator, context, submitted.trainjob["metadata"])
    show_checkpoint_link(operator, context, _exports_of_run(operator, context) if operator.export_uri else "")


def report_result(operator: Any, context: Context, result: Any) -> None:
    """Describe the result of a job (`trainwright.jobs.StepResult`) in the events of the task's outlets, and keep it for lineage."""
    from trainwright.steps.reported_metrics import finite_metrics

    operator.__dict__["_result_of_job"] = result
    uri = workspace_uri(getattr(operator, "workspace", ""), result.folder)
    metrics = finite_metrics(result.metrics, result.results)
    describe_outlets(operator, context, uri=uri, trainjob=result.trainjob, namespace=result.namespace, metrics=metrics)


@contextmanager
def report_end(operator: Any, seconds: Mapping[str, float] | None = None) -> Iterator[None]:
    """Count the job whose end is awaited in the block, and record its times: `seconds` (see `stats`), else those of the printer.

    A block that raises anything but the failure, the divergence, the deletion or the deadline of a job (a deferral, a cancellation,
    an early stop, an error of the task) counts nothing.
    """
    from trainwright.jobs.diagnosis.errors import Diverged, ImagePullFailed, TrainJobDeadline, TrainJobDeleted, TrainJobFailed

    outcome = ""
    try:
        yield
        outcome = "succeeded"
    except (Diverged, ImagePullFailed, TrainJobDeadline, TrainJobDeleted, TrainJobFailed):
        outcome = "failed"
        raise
    finally:
        if outcome:
            stats.count(outcome)
            printer = vars(operator).get("_printer")
            stats.record_times(seconds if seconds is not None else printer.seconds if printer is not None else {})


def _exports_of_run(operator: Any, context: Context) -> str:
    """The folder of exports of the task's run, as a URI; empty for what is no URI."""
    from trainwright.operators.values.task_identity import task_identity
    from trainwright.storage.errors import BadUri
    from trainwright.storage.uri import StorageUri

    try:
        root = StorageUri.parse(operator.export_uri)
    except BadUri:
        return ""
    return str(root.join(task_identity(context, operator._asked.run.run_id).exports))
