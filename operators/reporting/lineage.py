"""Reports which dataset and model a task reads, and what it writes: to OpenLineage, and in the asset events of its outlets.

Airflow's OpenLineage provider calls the methods of an operator. Nothing is imported before that, and without the provider nothing
is reported. The events of outlets are for the DAGs that are scheduled on these assets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context


PRODUCER = "urn:trainwright:operators"
_HUB = "https://huggingface.co"


class ReportsLineage:
    """The methods that the provider calls. Subclasses say what is read and written in `_lineage`."""

    def get_openlineage_facets_on_start(self) -> Any:
        """What the task is going to read and write (`OperatorLineage`); None without the provider."""
        return self._reported_lineage(is_complete=False)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What it has read and written."""
        return self._reported_lineage(is_complete=True)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """What it was to read and write: a failed task may have written a part."""
        return self._reported_lineage(is_complete=False)

    def _lineage(self, *, is_complete: bool) -> dict[str, Any]:
        """`inputs` and `outputs`, lists of arguments of `_dataset`, and the `job`, a dict of plain values."""
        raise NotImplementedError

    def _reported_lineage(self, *, is_complete: bool) -> Any:
        try:
            from airflow.providers.openlineage.extractors import OperatorLineage  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            return None
        found = self._lineage(is_complete=is_complete)
        datasets = {
            side: [entry for given in found[side] if (entry := _dataset(side, **given))] for side in ("inputs", "outputs")
        }
        return OperatorLineage(**datasets, job_facets=_job_facets(found["job"]))


class TrainJobLineage(ReportsLineage):
    """Of a TrainJobOperator: it reads dataset, model and the export that it resumes from, and writes the run's folder."""

    def _lineage(self, *, is_complete: bool) -> dict[str, Any]:
        task: Any = self
        inputs = [
            {"uri": task.dataset_uri, "digest": task.dataset_digest},
            {"uri": task.model_uri, "digest": task.model_digest},
            {"uri": "" if task.resume in ("auto", "never") else task.resume.removeprefix("weights:")},
        ]
        request = task.entry.request if task.entry is not None else None  # not yet when the task begins
        result = task.entry.result if task.entry is not None and is_complete else None
        workspace = request.workspace if request is not None else task.workspace
        outputs = [{"uri": workspace_uri(str(workspace or ""), result.folder)}] if result is not None else []
        job = {name: getattr(task, name) for name in ("code", "runtime", "builtin", "image", "num_nodes")}
        job["queue_name"] = request.placement.queue_name if request is not None else ""
        return {"inputs": inputs, "outputs": outputs, "job": job}


class ExportLineage(ReportsLineage):
    """Of an ExportCheckpointOperator: it reads the run's folder, and writes the export."""

    def _lineage(self, *, is_complete: bool) -> dict[str, Any]:
        task: Any = self
        exported = (task.exported if is_complete else None) or {}
        output = {"uri": exported.get("uri", ""), "digest": exported.get("digest", ""), "size": exported.get("bytes")}
        folder = workspace_uri(task.of_run().workspace, task.run_folder) if task.run_folder else ""
        return {"inputs": [{"uri": folder}], "outputs": [output], "job": {"trainjob": task.trainjob or task.beside}}


def workspace_uri(workspace: str, folder: str) -> str:
    """Return the URI of a run's folder on a workspace; empty without one of them."""
    root = str(workspace or "").partition("?")[0].rstrip("/")
    if not root or not folder:  # without a workspace, there is nothing that others could read
        return ""
    return f"{root if '://' in root else f'pvc://{root}'}/{folder}"


def dataset_name(uri: str) -> tuple[str, str] | None:
    """Return namespace and name of a URI as OpenLineage names datasets, without user and query; None for what is no URI."""
    from trainwright.storage.errors import BadUri
    from trainwright.storage.uri import StorageUri

    try:
        parsed = StorageUri.parse(uri)
    except BadUri:  # without an address it is not a dataset of OpenLineage
        return None
    if parsed.scheme == "file":
        return "file", parsed.location
    if parsed.scheme == "hf":
        kind = "datasets/" if parsed.kind == "dataset" else ""
        return _HUB, f"{kind}{parsed.location}{'/' + parsed.folder if parsed.folder else ''}"
    place, _, path = parsed.location.partition("/")
    return f"{parsed.scheme}://{place}", path.rstrip("/") or "/"


def _dataset(side: str, *, uri: str, digest: str = "", size: int | None = None) -> Any:
    """An input or output dataset with its digest as its version, and its size in bytes; None for what is no URI."""
    if not uri or (named := dataset_name(uri)) is None:  # not a dataset of OpenLineage
        return None
    from openlineage.client.event_v2 import InputDataset, OutputDataset  # type: ignore[import-not-found, unused-ignore]
    from openlineage.client.facet_v2 import (  # type: ignore[import-not-found, unused-ignore]
        dataset_version_dataset,
        output_statistics_output_dataset,
    )

    namespace, name = named
    facets: Any = {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=digest)} if digest else {}
    if side == "inputs":
        return InputDataset(namespace, name, facets=facets)
    statistics: Any = {}
    if size is not None:
        statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(size=size)
    return OutputDataset(namespace, name, facets=facets, outputFacets=statistics)


def _job_facets(job: dict[str, Any]) -> dict[str, Any]:
    """A facet with the settings of the training, and where its code is, if that is a repository. Empty values are left out."""
    from openlineage.client.facet_v2 import JobFacet, source_code_location_job  # type: ignore[import-not-found, unused-ignore]

    facets: dict[str, Any] = {}
    code = str(job.pop("code", ""))
    if (
        code.startswith("git+https://")
        and "@" not in (code := code.removeprefix("git+")).removeprefix("https://").partition("/")[0]
    ):
        address, _, revision = code.partition("#")[0].rpartition("@")
        location = source_code_location_job.SourceCodeLocationJobFacet(
            type="git", url=address or revision, version=revision if address else None
        )
        facets["sourceCodeLocation"] = location
    if known := {name: value for name, value in job.items() if value not in (None, "", {})}:
        facets["trainwright"] = JobFacet(producer=PRODUCER).with_additional_properties(**known)
    return facets


def describe_outlets(operator: Any, context: Context, **facts: Any) -> None:
    """Add facts to the `extra` of the events of all assets and asset aliases that the task has as outlets; empty ones are left out.

    What others have set there under the same names stays.
    """
    accessors = context.get("outlet_events") if hasattr(context, "get") else None
    if not operator.outlets or accessors is None:  # no assets, or no events to describe them in
        return
    from airflow.sdk import Asset, AssetAlias

    known = {name: _finite(value) for name, value in facts.items() if value not in (None, "", {})}
    for outlet in operator.outlets:
        if isinstance(outlet, Asset | AssetAlias):
            extra = accessors[outlet].extra
            extra.update({name: value for name, value in known.items() if name not in extra})


def _finite(value: Any) -> Any:
    """Return a value for JSON, which has no NaN: metrics without those that are not finite."""
    if isinstance(value, dict):
        return {name: entry for name, entry in value.items() if not isinstance(entry, float) or math.isfinite(entry)}
    return value
