"""The checks of settings that need the schemas of Kubernetes: a whole TrainJob as the request, scheduling, variables and volumes.

The classes of settings import this when a request is built, not before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationInfo

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.documents import load_documents
from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, copy_of
from trainwright.api.schema.check import findings
from trainwright.api.schema.decoding import decoding_problems
from trainwright.api.schema.defaulting import apply_defaults
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.types import Struct
from trainwright.cluster.protocol import FieldValidation
from trainwright.jobs.credentials.secret_detection import LiteralSecret, reject_literals
from trainwright.jobs.request.setting_values import Topology, Variables, floats_to_integers
from trainwright.text.suggest import suggest

_NAME = "trainjob"
"""Placeholder name for validation; the step determines the real name."""
_QUEUE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


def checked_manifest(given: Any, info: ValidationInfo) -> Obj | None:
    """Return the TrainJob of an object, of YAML or JSON text, or of a file path; None for an empty value.

    Manifests of earlier versions are migrated. The name is dropped, as the step determines it; labels, annotations and
    namespace are kept. The validation context may set `field_validation` to Ignore, to leave unknown fields to the API server, and
    `reads_files` to False, for a request that another step has made: there a path is refused.
    Raises ValueError with every problem that the API server would report.
    """
    if given is None or given in ("", {}):
        return None
    if not (context := info.context or {}).get("reads_files", True) and manifest_file(given):
        raise ValueError("expected an object or YAML text: only the step that is given a file reads it")
    try:
        documents = manifest_documents(given)
        kinds = [str(document.get("kind") or "no kind") for document in documents]
        if kinds != ["TrainJob"]:
            raise ValueError(f"expected one TrainJob, found {', '.join(kinds) or 'nothing'}")
        document = floats_to_integers(documents[0])
        reject_literals({"manifest": document})  # before any error message can contain a value
        return _checked(document, context.get("field_validation", "Strict"))
    except LiteralSecret:
        raise
    except (ApiError, ValueError) as error:
        reject_literals({"manifest": str(error)})  # for text that could not be parsed
        raise ValueError(str(error)) from None


def _checked(document: Obj, strictness: FieldValidation) -> Obj:
    from trainwright.migration import is_legacy, migrate  # most steps get no manifest

    if is_legacy(document):
        document = migrate(document).objects[-1]
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ValueError("metadata: expected an object")
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if metadata.get(key)}
    manifest: Obj = {key: value for key, value in document.items() if key not in ("metadata", "status")}
    checked = {**copy_of(manifest), "metadata": {"namespace": "default", **kept, "name": _NAME}}
    admit(checked, context=AdmissionContext(strictness=strictness))
    return {**manifest, "metadata": kept}


def manifest_file(given: Any) -> Path | None:
    """Return the path of a manifest that is given as one; None for an object or a text."""
    text = str(given) if isinstance(given, str | Path) else ""
    return Path(text) if "\n" not in text and text.endswith((".yaml", ".yml", ".json")) else None


def manifest_documents(given: Any) -> list[Obj]:
    """Return the objects in a manifest, as it is given: an object, text or a path. Raises ApiError, ValueError."""
    if isinstance(given, dict):
        return [given]
    if not isinstance(given, str | Path):
        raise ValueError(f"expected an object, YAML text or a path, got {type(given).__name__}")
    file = manifest_file(given)
    if file is None:
        return load_documents(str(given), "manifest")
    try:
        return load_documents(file.read_bytes(), str(given))
    except OSError as error:
        raise ValueError(f"{given}: {error.strerror}") from None


def scheduling_problems(
    *, queue: str, priority_class: str, topology: Topology | None, tolerations: list[dict[str, Any]], affinity: dict[str, Any]
) -> Iterator[str]:
    """Yield problems of the scheduling settings, each starting with the field."""
    if queue and not _QUEUE_NAME.fullmatch(queue):
        yield f"queue_name: {queue!r} is not the name of a queue"
    if priority_class and not _QUEUE_NAME.fullmatch(priority_class):
        yield f"priority_class: {priority_class!r} is not the name of a priority class"
    if priority_class and not queue:
        yield "priority_class: requires a queue, but queue_name is empty; the runtime sets a pod's priorityClassName"
    if topology is not None and not queue and topology.is_kueue_mode:
        yield f"topology: {str(topology)!r} requires a queue, but queue_name is empty; exclusive:KEY does not"
    for index, toleration in enumerate(tolerations):
        yield from schema_problems(struct_named("Toleration"), toleration, f"tolerations[{index}]")
    yield from schema_problems(struct_named("Affinity"), affinity, "affinity")


def known_variables(variables: Variables) -> Variables:
    """Return variables whose references are valid. Raises ValueError."""
    for name, value in variables.items():
        if isinstance(value, dict) and (problems := "; ".join(reference_problems(name, value))):
            raise ValueError(problems)
    return variables


def reference_problems(name: str, reference: dict[str, Any]) -> Iterator[str]:
    """Yield the problems of a reference, with the variable's name as the field."""
    if set(reference) != {"valueFrom"} or not isinstance(reference["valueFrom"], dict) or len(reference["valueFrom"]) != 1:
        yield f"{name}: expected a string, or valueFrom with one of secretKeyRef, configMapKeyRef, fieldRef, resourceFieldRef"
        return
    yield from schema_problems(struct_named("EnvVar"), {"name": name, **reference}, name)


def env_of(variables: Variables) -> list[Obj]:
    """Return the variables of a container, sorted by name: digests depend on the order, which orchestrators do not preserve."""
    ordered = sorted(variables.items())
    return [{"name": name, **({"value": value} if isinstance(value, str) else value)} for name, value in ordered]


def schema_problems(schema: Struct, value: dict[str, Any], path: str) -> Iterator[str]:
    """Yield `PATH: MESSAGE` for each unknown or invalid field."""
    misread = decoding_problems(schema, value, schema.type_name)
    if misread:
        yield from (f"{path}.{problem.field}: {problem.message}" for problem in misread)
        return
    _, unknown = apply_defaults(schema, value)
    yield from (f"{path}.{field}: unknown field; {suggest(field.rpartition('.')[2], known)}" for field, known in unknown)
    yield from (f"{path}.{problem.field}: {problem.message}" for problem in findings(schema, value).schema_problems)


def volume_problems(volumes: list[dict[str, Any]], mounts: list[dict[str, Any]]) -> Iterator[str]:
    """Yield problems of the volumes and their mounts, each starting with the field. A mount may be of a volume of the runtime."""
    for field, entries, name in (("volumes", volumes, "custom/Volume"), ("volume_mounts", mounts, "VolumeMount")):
        for index, entry in enumerate(entries):
            yield from schema_problems(struct_named(name), entry, f"{field}[{index}]")
    for field, key, found in (("volumes", "name", volumes), ("volume_mounts", "mountPath", mounts)):
        values = [str(entry.get(key)) for entry in found]
        yield from (f"{field}: {value!r} is there twice" for value in dict.fromkeys(values) if values.count(value) > 1)
