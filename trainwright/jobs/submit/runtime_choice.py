"""Resolves the runtime of a request and checks that it supports the request."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.request.builtin_trainers import runtime_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.submit.compatibility import check_compatible, steps_of_runtime
from trainwright.runtimes import ResolvedRuntime
from trainwright.submission.runtime_lookup import resolve_in_cluster

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RuntimeChoice:
    """The runtime that a request was resolved to: `found` is where, `steps` are its ancestor labels."""

    kind: str
    name: str
    found: str
    framework: str = ""
    steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def choose_runtime(cluster: Cluster, request: TrainRequest, namespace: str, *, bundled: bool) -> tuple[Obj, RuntimeChoice]:
    """Return the runtime of a request, checked for compatibility, and how it was chosen. Raises RuntimeNotFound, Invalid."""
    found = find_runtime(cluster, request, namespace, bundled=bundled)
    choice = RuntimeChoice(
        kind=request.kind_of_runtime,
        name=name_of(found.runtime),
        found=found.source if request.kind_of_runtime == "ClusterTrainingRuntime" else f"namespace {namespace}",
        framework=labels_of(found.runtime).get(names.FRAMEWORK_LABEL, ""),
        steps=tuple(steps_of_runtime(found.runtime)),
        warnings=tuple(check_compatible(request, found.runtime)),
    )
    log.info(
        "event=runtime_resolved kind=%s name=%s found=%s steps=%s", choice.kind, choice.name, choice.found, ",".join(choice.steps)
    )
    for warning in choice.warnings:
        log.warning("event=runtime_warning name=%s warning=%s", choice.name, warning)
    return found.runtime, choice


def find_runtime(cluster: Cluster, request: TrainRequest, namespace: str, *, bundled: bool = False) -> ResolvedRuntime:
    """Return the runtime that a request names, from the cluster, else from the bundled runtimes if `bundled`.

    Raises RuntimeNotFound with the existing names, and NoSuchTrainer.
    """
    ref = {"kind": request.kind_of_runtime, "name": runtime_of(request)}
    return resolve_in_cluster(cluster, ref, namespace, bundled=bundled)
