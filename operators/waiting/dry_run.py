"""`TrainJobOperator.dry_run`: the objects of a task as YAML, with comments on where they come from."""

from __future__ import annotations

from typing import Any

from trainwright.api.errors import ServiceUnavailable, Timeout
from trainwright.api.objects import name_of
from trainwright.cluster import NoCluster
from trainwright.jobs.state.identity import Identity, Submitter
from trainwright.jobs.submit.plan import preview_submission
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.allowed_places import check_places, places_given
from trainwright.operators.values.given_run import Asked
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission.connect import NoTrainingApi
from trainwright.submission.jobs_client import JobsClient
from trainwright.text.yaml_writer import to_yaml_documents

DRY_RUN_ID = "dry-run"


def preview_task(operator: Any) -> str:
    """Return the YAML of the TrainJob that the operator would submit, and of the objects that are built from it.

    If no cluster can be reached, the bundled runtimes count, which a comment says. Raises the errors of `preview_submission`, with
    the reason why there is no cluster if the runtime is not a bundled one; PlaceNotAllowed; ValueError for settings that are
    still templates and cannot be read as such.
    """
    check_places((operator.conn_id,), **places_given(operator._values()))
    asked = _asked(operator)
    request, run = asked.request, asked.run
    cluster, missing = _cluster(operator, asked.submission_mode)
    namespace = run.namespace or request.namespace or (str(cluster.default_namespace) if cluster is not None else "default")
    submitter = Submitter(pipeline=operator.dag_id)
    identity = Identity(f"airflow/{operator.dag_id}", run.run_id or DRY_RUN_ID, operator.task_id, submitter=submitter)
    try:
        preview = preview_submission(request, identity, namespace, cluster)
    except RuntimeNotFound as error:  # the cluster may have it, if one was to be asked
        if not missing:
            raise
        raise RuntimeNotFound(f"{error}; no cluster was asked for others: {missing}", problems=error.problems) from None
    comments = [
        f"run {identity.run}, mode {preview.mode}, runtime {preview.runtime}",
        f"the TrainJob, then the objects that are built from it, {preview.builder}; nothing is created",
        *([f"no cluster: {missing}"] if missing else []),
        *(f"also created: {each['kind']} {name_of(each)}, if it does not exist" for each in preview.needed),
        *(f"warning: {text}" for text in preview.warnings),
    ]
    lines = "".join(f"# {' '.join(comment.split())}\n" for comment in comments)
    return lines + to_yaml_documents([preview.trainjob, *preview.objects])


def _asked(operator: Any) -> Asked:
    """The validated settings. A template that is not rendered is named: it is text where a number or an object may be expected."""
    try:
        asked: Asked = operator.asked()
        return asked
    except (ValueError, TypeError) as error:
        templates = [name for name in operator.template_fields if _is_template(getattr(operator, name, None))]
        if not templates:
            raise
        raise ValueError(
            f"{error}\nnot rendered yet: {', '.join(templates)}; call render_template_fields(context) first"
        ) from error


def _is_template(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_template, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_template, value))
    return "{{" in value if isinstance(value, str) else hasattr(value, "resolve")  # XComArg


def _cluster(operator: Any, mode: str) -> tuple[JobsClient | None, str]:
    """The cluster, or None and why there is none. The error of a cluster that denies access is raised: it is not missing."""
    try:
        return TrainwrightHook(operator.conn_id, mode).get_conn(), ""
    except NoTrainingApi:  # the cluster answers: it is not missing
        raise
    except (NoCluster, ServiceUnavailable, Timeout) as error:  # a DAG can be checked without its cluster
        return None, str(error)
