"""A client for the TrainJobs of a cluster. All that depends on the submission mode is a member of it: nothing above asks for the mode.

TrainJobs are submitted as TrainJobs, or as JobSets if no controller handles TrainJobs. `connect_for_jobs` chooses between this class
and `JobSetCluster`; an argument, a connection or TRAINWRIGHT_SUBMISSION_MODE overrides it. The TrainJob fields that a cluster serves
are read from its CustomResourceDefinition, once in a process.
"""

from __future__ import annotations

import enum
import logging
import os
import threading
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Self, Unpack

from trainwright.api import names
from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.errors import ApiError, Forbidden, Invalid, MethodNotAllowed, NotFound, Problem, Unauthorized
from trainwright.api.generated_names import with_sample_name
from trainwright.api.kinds import JOBSET, TRAINER, TRAINJOB, Kind, kind_of
from trainwright.api.objects import Obj, controller_of, is_deleting, labels_of, name_of, namespace_of
from trainwright.cluster.connect import NoCluster
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.protocol import (
    Cluster,
    CreateOptions,
    DelegatingCluster,
    FieldValidation,
    Listing,
    ListOptions,
    OnWarning,
)
from trainwright.materialize import materialize
from trainwright.materialize.frameworks.labelled_runtime import MARKS, framework_without_peers
from trainwright.materialize.keys import Keys
from trainwright.submission.controller_lease import controller_state, is_embedded_server, is_guarded

NO_POLICY = "Trainer has no policy for {}"
USE_PLUGINS = "use the submission mode jobset, or `trainwright controller` in place of Trainer's (docs/controller.md)"
VARIABLE = "TRAINWRIGHT_SUBMISSION_MODE"
DEFINITION = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
log = logging.getLogger(__name__)


class Mode(enum.StrEnum):
    """How TrainJobs are submitted; `auto` decides for each cluster."""

    auto = "auto"
    trainjob = "trainjob"
    jobset = "jobset"
    embedded = "embedded"


class UnknownMode(NoCluster, ValueError):
    """The requested mode does not exist: bad input, found before any connection."""


def requested_mode(given: str = "") -> Mode:
    """Return the requested mode: the argument, else TRAINWRIGHT_SUBMISSION_MODE, else auto. Raises UnknownMode."""
    text, where = (given, "submission mode") if given else (os.environ.get(VARIABLE) or Mode.auto, VARIABLE)
    if text not in list(Mode):
        raise UnknownMode(f"{where}: {text[:40]!r} is not one of {', '.join(Mode)}")
    return Mode(text)


class PolicyMissing(Invalid):
    """The controller of the cluster does not run the policy that the runtime needs."""


@dataclass(frozen=True)
class Built:
    """A TrainJob and the objects built from it; `jobset` is None if another manager builds it.

    `companions` have no owner yet: the JobSet owns them once it has a UID.
    """

    trainjob: Obj
    jobset: Obj | None
    companions: list[Obj]

    @property
    def objects(self) -> list[Obj]:
        """In the order in which they are created."""
        return [*self.companions, *([self.jobset] if self.jobset is not None else [])]


class JobsClient(DelegatingCluster):
    """A `Cluster` on which TrainJobs are submitted and followed: this class if a controller handles them, else `JobSetCluster`."""

    mode = Mode.trainjob
    """For logs and users."""
    job_kind: Kind = TRAINJOB
    """The kind that is stored for a TrainJob: the one to own objects, to be patched at once, and to have permissions for."""
    uses_bundled_runtimes = False
    """Whether bundled runtimes are used for those that the cluster does not have."""
    builder = "by the controller of Kubeflow Trainer"
    """Who builds the objects of a TrainJob, for users."""
    reason = warning = ""
    """Why this mode was chosen, and a possible problem."""
    other: JobsClient | None = None
    """The client of this cluster in the other mode, if `auto` may choose that mode at another time."""

    def __init__(self, cluster: Cluster, *, default_namespace: str = "default"):
        super().__init__(cluster)
        self.default_namespace = default_namespace

    @classmethod
    def of(cls, cluster: Cluster) -> JobsClient:
        """Return `cluster` itself if it is a client, else a client for a cluster whose controller handles TrainJobs."""
        if isinstance(cluster, JobsClient):
            return cluster
        return JobsClient(cluster, default_namespace=getattr(cluster, "default_namespace", "default"))

    def with_timeout(self, seconds: float) -> Self:
        """Return a client for the same cluster that shares no connection with this one, where there are connections."""
        client = copy(self)
        if (connect := getattr(self._cluster, "with_timeout", None)) is not None:
            client._cluster = connect(seconds)
        return client

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        """Send a request by URL path. Raises MethodNotAllowed for a cluster of this process, and the errors of the server."""
        send = getattr(self._cluster, "request", None)
        if send is None:
            raise MethodNotAllowed("this cluster has no API server")
        answer: Obj = send(method, path, body)
        return answer

    def has_api_server(self) -> bool:
        """Whether this is a client of an API server, and not of a cluster in this process."""
        return isinstance(self._cluster, KubernetesCluster)

    def is_embedded(self) -> bool:
        """Whether the cluster is an embedded one that runs in another process. Raises ApiError."""
        return isinstance(self._cluster, KubernetesCluster) and is_embedded_server(self._cluster)

    def is_guarded(self, namespace: str) -> bool | None:
        """Whether something on the cluster ends jobs that nobody waits for any more; None if that is not known. Raises ApiError."""
        if not isinstance(self._cluster, KubernetesCluster):
            return True
        return is_guarded(self._cluster, namespace, by_controller=self.mode is Mode.trainjob)

    def why_no_plugins(self, namespace: str) -> str:
        """Return why the policies of plugins may not run for TrainJobs; an empty string if they run. Raises ApiError."""
        if not isinstance(self._cluster, KubernetesCluster):
            return ""
        controller = controller_state(self._cluster, namespace)
        return "" if controller.runs_plugins else controller.reason

    def check_plugins(self, trainjob: Obj, runtime: Obj, namespace: str) -> None:
        """Check that the nodes of a TrainJob will find each other: Trainer's own controller does not know policies of plugins.

        Without the policy that its runtime needs, every node trains alone, and the job succeeds. Raises PolicyMissing, ApiError.
        """
        framework = framework_without_peers(trainjob, runtime)
        if framework and (reason := self.why_no_plugins(namespace)):
            message = (
                f"{NO_POLICY.format(framework)}, so that each of several nodes would train alone and succeed ({reason}): "
                f"{USE_PLUGINS}, or set {MARKS[framework][-1]} in env"
            )
            raise PolicyMissing.of("TrainJob", name_of(trainjob), [Problem("spec.runtimeRef", message)], TRAINER)

    def pages(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Iterator[Listing]:
        """Yield a list page by page if the cluster supports it; else as one page."""
        pages = getattr(self._cluster, "pages", None)
        yield from pages(kind, namespace, **options) if pages else [self._cluster.list(kind, namespace, **options)]

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        """Create an object. Raises Invalid for a TrainJob whose name `check_name` rejects."""
        if kind_of(obj) == TRAINJOB:
            self.check_name(obj)
        return self._cluster.create(obj, **options)

    def check_name(self, trainjob: Obj) -> None:
        """Reject the name of another job's JobSet: the controller never replaces that, so the TrainJob would not start.

        Nothing is rejected without permission to read JobSets. Raises Invalid, ApiError.
        """
        name, namespace = name_of(trainjob), namespace_of(trainjob) or self.default_namespace
        try:
            jobset = self._cluster.get(JOBSET, name, namespace) if name else None
        except (NotFound, Forbidden):  # nobody has the name, or this account may not look
            return
        if jobset is None or is_deleting(jobset):
            return
        owner = controller_of(jobset) or {}
        if (owner.get("kind"), owner.get("name")) == (TRAINJOB.kind, name):  # its TrainJob exists, or both are being deleted
            return
        is_ours = labels_of(jobset).get(names.SOURCE_KIND_LABEL) == TRAINJOB.kind
        use = ", or use the mode jobset" if is_ours else ""
        origin = "was submitted in jobset mode" if is_ours else "was not created for a TrainJob"
        raise Invalid(
            f"the JobSet {namespace}/{name} exists and {origin}, so that the TrainJob {name} would never start: "
            f"give the TrainJob another name, delete the JobSet{use}"
        )

    def build(self, trainjob: Obj, sent: Obj, runtime: Obj, *, keys: Keys | None = None) -> Built:
        """Materialize a TrainJob with its runtime, for `submit`. `sent` is the TrainJob in the API version that the cluster serves.

        If a controller builds the objects, the result is a preview: without keys, and empty for a job with another manager.
        `keys` are random unless given. Raises Invalid.
        """
        objects = materialize(trainjob, runtime)
        return Built(sent, objects[-1] if objects else None, objects[:-1])

    def submit(self, built: Built, *, on_warning: OnWarning | None = None) -> Obj:
        """Create the TrainJob, or the JobSet that represents it in this mode. Raises the errors of `Cluster.create`.

        The server rejects a TrainJob with a field that its version of Trainer does not have.
        """
        return self._cluster.create(built.trainjob, field_validation="Strict", on_warning=on_warning)

    def dry_run(self, trainjob: Obj, runtime: Obj, *, strictness: FieldValidation, on_warning: OnWarning) -> Obj:
        """Return a TrainJob as it would be stored with a runtime that the cluster does not have yet. Raises Invalid, ApiError."""
        admitted = admit(trainjob, context=AdmissionContext(lookup=lambda *_: runtime, strictness=strictness)).object
        materialize(with_sample_name(admitted), runtime)
        return admitted


@dataclass(frozen=True)
class ServedSchema:
    """The schema of `spec`. Checked before submission, since API servers silently drop unknown fields."""

    spec: Obj

    def has(self, field: str) -> bool:
        return field in (self.spec.get("properties") or {})

    def unserved(self, spec: Obj) -> list[str]:
        """Return the fields of a spec that would be dropped, as paths below `spec`."""
        return list(_unserved(self.spec, spec, "spec"))


_known: dict[tuple[str | None, Kind], ServedSchema | None] = {}
_lock = threading.Lock()


def served_trainjob(client: JobsClient, sender: Cluster | None = None) -> ServedSchema | None:
    """Return the schema of TrainJobs on a cluster; None if it cannot be read, or does not exist (embedded control plane).

    `sender` sends the request for the same cluster, for instance a RetryingCluster.
    """
    key = client.host, client.job_kind
    with _lock:  # held during the request, so that concurrent callers share one request
        if client.host is not None and key in _known:  # a cluster of this process has no host
            return _known[key]
        try:
            _known[key] = _fetch_schema(sender or client)
        except ApiError as error:  # transient: not cached
            log.debug("event=trainjob_crd_not_read error=%s", error.message)
            return None
        return _known[key]


def forget_served(client: JobsClient) -> None:
    """Drop the cached schema, after a response that did not match it."""
    with _lock:
        _known.pop((client.host, client.job_kind), None)


def schema_in(definition: Obj) -> ServedSchema | None:
    """Return the schema of the supported version; None if there is none. Pure."""
    for version in (definition.get("spec") or {}).get("versions") or []:
        if version.get("name") == TRAINJOB.version and version.get("served", True):
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            spec = (schema.get("properties") or {}).get("spec")
            return ServedSchema(spec) if spec and spec.get("properties") else None
    return None


def _fetch_schema(cluster: Cluster) -> ServedSchema | None:
    try:
        return schema_in(cluster.get(DEFINITION, TRAINJOB.resource))
    except (Forbidden, Unauthorized, NotFound) as error:  # an optional right: unknown fields are then not reported
        log.info("event=trainjob_crd_not_readable reason=%s", error.reason)
        return None


def _unserved(schema: Obj, value: object, path: str) -> list[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    if isinstance(value, list):
        return [p for index, item in enumerate(value) for p in _unserved(schema.get("items") or {}, item, f"{path}[{index}]")]
    if not isinstance(value, dict):
        return []
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict) and "properties" not in schema:
        return [p for key, item in value.items() for p in _unserved(inner, item, f"{path}.{key}")]
    cached = schema.get("properties") or {}
    return [
        p
        for key, item in value.items()
        for p in (_unserved(cached[key], item, f"{path}.{key}") if key in cached else [f"{path}.{key}"])
    ]
