"""Resolves a request: finds its runtime, checks that both fit, packs its code. What follows needs neither found out again.

A runtime fits with the steps and their ancestor labels, a command and valid resources. Trainer ignores settings that no step uses:
a job would train without its dataset or its arguments, and succeed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from trainwright.api import names
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, annotations_of, labels_of, name_of
from trainwright.api.quantities import Quantity, parse_quantity
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.code.code_package import pack_code
from trainwright.jobs.manifest.mounts import mounted_inputs, volume_type_problems, workspace_problems
from trainwright.jobs.manifest.resolved_request import (
    ResolvedRequest,
    initializer_container,
    replicated_jobs,
    step_of_job,
    trainer_container,
)
from trainwright.jobs.manifest.resume_patch import has_resume_point, resume_problems
from trainwright.jobs.manifest.sources import claim_source_problems, source_problems
from trainwright.jobs.manifest.training_program import own_program
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.workspace import WEIGHTS
from trainwright.jobs.state.usage import BadPrice, prices_in, prices_of_runtime
from trainwright.jobs.submit.launchers import launcher_problems, launcher_warnings
from trainwright.jobs.trainers.builtin_trainers import program_of, runtime_of, trainer_for, trainer_problems
from trainwright.materialize.resources import gpu_count
from trainwright.runtimes import resolve_runtime
from trainwright.submission.runtime_lookup import resolve_in_cluster

log = logging.getLogger(__name__)
_STEP_OF_FIELD = {
    "dataset_uri": names.ANCESTOR_DATASET,
    "data.dataset_env": names.ANCESTOR_DATASET,
    "secrets.dataset_secret": names.ANCESTOR_DATASET,
    "model_uri": names.ANCESTOR_MODEL,
    "data.model_env": names.ANCESTOR_MODEL,
    "secrets.model_secret": names.ANCESTOR_MODEL,
    "image": names.ANCESTOR_TRAINER,
    "command": names.ANCESTOR_TRAINER,
    "args": names.ANCESTOR_TRAINER,
    "func": names.ANCESTOR_TRAINER,
    "code": names.ANCESTOR_TRAINER,
    "env": names.ANCESTOR_TRAINER,
    "resources_per_node": names.ANCESTOR_TRAINER,
}
_GROUPS = ("limits", "requests")
LAUNCHER = "orderly_exit.py"


@dataclass(frozen=True)
class RuntimeChoice:
    """The runtime that a request was resolved to: `found` is where, `steps` are its ancestor labels."""

    kind: str
    name: str
    found: str
    framework: str = ""
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.found})"


def resolve(request: TrainRequest, runtime: Obj) -> ResolvedRequest:
    """Return a request with this runtime, checked, and its code packed.

    Raises IncompatibleRuntime or InvalidSettings with every problem, NoSuchTrainer, BadCode.
    """
    own = own_program(request, runtime)
    trainer = trainer_for(request, runtime, own)
    program, problems = program_of(trainer, request, runtime, own)
    resolved = ResolvedRequest(request, runtime, trainer, program, mounted_inputs(request, runtime))
    check_compatible(resolved, problems)
    code = pack_code(request.code, request.command) if request.code else None
    return replace(resolved, code=code, warnings=tuple(compatibility_warnings(resolved)))


def resolve_with(
    cluster: Cluster | None, request: TrainRequest, namespace: str, *, bundled: bool = True
) -> tuple[ResolvedRequest, RuntimeChoice]:
    """Return a request with the runtime that it names, and how that was chosen.

    The runtime is the cluster's, if there is one, else a bundled one if `bundled`. Raises
    RuntimeNotFound with the existing names, the errors of `resolve`, and ApiError.
    """
    reference = {"kind": request.kind_of_runtime, "name": runtime_of(request)}
    found = (
        resolve_runtime(reference, lambda _kind, _name: None, bundled=bundled)
        if cluster is None
        else resolve_in_cluster(cluster, reference, namespace, bundled=bundled)
    )
    resolved = resolve(request, found.runtime)
    choice = RuntimeChoice(
        kind=request.kind_of_runtime,
        name=name_of(found.runtime),
        found=found.source if request.kind_of_runtime == "ClusterTrainingRuntime" else f"namespace {namespace}",
        framework=labels_of(found.runtime).get(names.FRAMEWORK_LABEL, ""),
        steps=tuple(steps_of_runtime(found.runtime)),
    )
    log.info(
        "event=runtime_resolved kind=%s name=%s found=%s steps=%s", choice.kind, choice.name, choice.found, ",".join(choice.steps)
    )
    return resolved, choice


class IncompatibleRuntime(Invalid):
    """The runtime does not support the request; the problems name the fields of the request."""


class InvalidRequest(Invalid):
    """The request is wrong for every runtime; the problems name its fields."""


def check_compatible(resolved: ResolvedRequest, wrong_settings: Iterable[Problem] = ()) -> None:
    """Check a request and its runtime; `wrong_settings` are the problems of the builtin trainer's settings.

    Raises IncompatibleRuntime, or InvalidRequest if the runtime has no part in it, with every problem.
    """
    request, runtime = resolved.request, resolved.runtime
    of_request = [
        *wrong_settings,
        *_resource_problems(request.resources_per_node),
        *_cannot_load_weights(resolved),
        *_cannot_find_end_token(resolved),
        *_price_problems(request, runtime),
    ]
    of_runtime = [
        *_missing_steps(resolved),
        *trainer_problems(resolved.trainer, request, runtime),
        *_nothing_to_run(resolved),
        *launcher_problems(resolved),
        *resume_problems(request.resume, runtime),
        *(Problem("workspace", words) for words in (workspace_problems(runtime) if request.workspace else ())),
        *volume_type_problems(resolved),
        *claim_source_problems(resolved),
        *source_problems(resolved),
    ]
    if of_runtime:
        raise IncompatibleRuntime.of("TrainRequest", name_of(runtime), [*of_runtime, *of_request])
    if of_request:
        raise InvalidRequest.of("TrainRequest", name_of(runtime), of_request)


def _resource_problems(resources: dict[str, dict[str, str]]) -> Iterator[Problem]:
    for group in sorted(set(resources) - set(_GROUPS)):
        yield Problem(f"resources_per_node.{group}", "expected limits or requests")
    amounts: dict[tuple[str, str], Quantity] = {}
    for group in _GROUPS:
        for resource, text in resources.get(group, {}).items():
            try:
                amounts[group, resource] = parse_quantity(text)
            except ValueError as error:
                yield Problem(f"resources_per_node.{group}.{resource}", str(error))
    for (group, resource), wanted in amounts.items():
        limit = amounts.get(("limits", resource))
        if group == "requests" and limit is not None and wanted > limit:
            yield Problem(f"resources_per_node.requests.{resource}", f"{wanted} is more than the limit of {limit}")


def _cannot_load_weights(resolved: ResolvedRequest) -> Iterator[Problem]:
    """Only the launcher of the runtime's own command loads the weights of an export, and no reference follows them."""
    request = resolved.request
    if request.resume.startswith(WEIGHTS) and resolved.program is not None and resolved.program.has_reference:
        yield Problem(
            "resume",
            f"{WEIGHTS}URI is not for trainers with a reference model, which would still be the base model; use an export of all "
            "weights, or the merged one of an adapter, as model_uri",
        )
    if not request.resume.startswith(WEIGHTS) or any(LAUNCHER in word for word in request.command):
        return
    for field in ("func", "code", "command"):
        if getattr(request, field):
            yield Problem(
                "resume",
                f"{WEIGHTS}URI is for the runtime's own command, and {field} replaces it; read the export in the program, or use it "
                "as model_uri",
            )


def _cannot_find_end_token(resolved: ResolvedRequest) -> Iterator[Problem]:
    """Only the init container of our runtimes reads the chat template before the training starts."""
    is_asked = resolved.program is not None and names.END_TOKEN_VARIABLE in resolved.program.start_variables
    if is_asked and not has_resume_point(resolved.runtime):
        yield Problem(
            "settings.end_token",
            f"auto is found by the init container {names.RESUME_POINT!r}, which the runtime {name_of(resolved.runtime)!r} lacks "
            "(trl-sft has it); name the token",
        )


def _price_problems(request: TrainRequest, runtime: Obj) -> Iterator[Problem]:
    given = annotations_of(request.manifest) if request.manifest is not None else {}
    try:
        prices_in({**prices_of_runtime(runtime), **given, **request.placement.annotations})
    except BadPrice as error:
        yield Problem("placement.annotations", str(error))


def _missing_steps(resolved: ResolvedRequest) -> Iterator[Problem]:
    runtime = resolved.runtime
    steps = steps_of_runtime(runtime)
    for field, step in _STEP_OF_FIELD.items():
        if field.rpartition(".")[2].partition("_")[0] in resolved.inputs:  # already prepared: needs no initializer step
            continue
        if attrgetter(field)(resolved.request) and step not in steps:
            has = ", ".join(steps) or "none"
            yield Problem(field, f"the runtime {name_of(runtime)!r} has no step {step!r} that uses it (its steps: {has})")


def _nothing_to_run(resolved: ResolvedRequest) -> Iterator[Problem]:
    """Reject a job without a command: most framework images would start a shell that ends at once."""
    request, program = resolved.request, resolved.program
    container = trainer_container(resolved.runtime)
    trainer = (request.manifest or {}).get("spec", {}).get("trainer") or {}
    given = (request.command, request.func, request.code, request.image, trainer.get("command"), trainer.get("image"))
    if container is None or container.get("command") or any(given) or (program is not None and program.command):
        return
    yield Problem(
        "command",
        f"the runtime {name_of(resolved.runtime)!r} has no command; set command, func, code, or an image with a command",
    )


def steps_of_runtime(runtime: Obj) -> dict[str, str]:
    """Return a map from ancestor label to the name of the replicated job that has it."""
    found: dict[str, str] = {}
    for job in replicated_jobs(runtime):
        found.setdefault(step_of_job(job), str(job["name"]))
    return {step: job for step, job in found.items() if step}


def compatibility_warnings(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield what may be a mistake in a request and its runtime that fit."""
    request, runtime, program = resolved.request, resolved.runtime, resolved.program
    labels = labels_of(runtime)
    if names.FRAMEWORK_LABEL not in labels:
        yield f"the runtime has no label {names.FRAMEWORK_LABEL}: clients cannot tell its framework"
    if labels.get(names.SUPPORT_LABEL) == "deprecated":
        yield "the runtime is marked as deprecated"
    if not (runtime["spec"].get("mlPolicy")) and (request.resources_per_node or (request.num_nodes or 1) > 1):
        yield "the runtime has no mlPolicy: Trainer ignores num_nodes and resources_per_node"
    yield from _unnamed_inputs(resolved)
    yield from launcher_warnings(resolved)
    gpus = gpu_count(request.resources_per_node)
    of_runtime = gpu_count((trainer_container(runtime) or {}).get("resources") or {})
    if program is not None and program.requires_gpu and not gpus and not of_runtime:
        without = f", or {program.without_gpu} to train on the CPU" if program.without_gpu else ""
        yield (
            "neither the runtime nor resources_per_node requests a GPU, but the training program requires one: set "
            f'resources_per_node={{"nvidia.com/gpu": 1}}{without}'
        )
    if gpus and (request.num_proc_per_node or 0) > gpus:
        yield f"num_proc_per_node={request.num_proc_per_node} is more than the {gpus} GPUs of a node"


def _unnamed_inputs(resolved: ResolvedRequest) -> Iterator[str]:
    """Warn of an initializer without a source: it fails, and the job with it."""
    request, runtime = resolved.request, resolved.runtime
    if request.manifest is not None:
        return
    sources = {"dataset": request.source("dataset"), "model": request.source("model")}
    for kind, ancestor in (("dataset", names.ANCESTOR_DATASET), ("model", names.ANCESTOR_MODEL)):
        container = initializer_container(runtime, ancestor)
        if container is None or kind in resolved.inputs or sources[kind].uri or sources[kind].env:
            continue
        if not any(entry["name"] == "STORAGE_URI" for entry in container.get("env") or []):
            yield f"{kind}_uri is empty and the runtime's step {ancestor!r} has no default source: it will fail"
