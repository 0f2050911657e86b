"""The kinds that Trainwright knows, shared by clients, controllers and the embedded API server."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainwright.api.objects import Obj


@dataclass(frozen=True)
class Kind:
    """One resource of the Kubernetes API.

    `group` is empty for the core group; `status` is whether it has a status subresource.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = field(default=())

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def resource(self) -> str:
        """`plural.group`, as in error messages and RBAC."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def prefix(self) -> str:
        """The URL path of the group version: `/api/v1` or `/apis/GROUP/VERSION`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The URL path of a collection, or of one object when `name` is given."""
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.prefix}{scope}/{self.plural}{'/' + name if name else ''}"


TRAINER = "trainer.kubeflow.org"

TRAINJOB = Kind(TRAINER, "v1alpha1", "TrainJob", "trainjobs", status=True)
TRAINING_RUNTIME = Kind(TRAINER, "v1alpha1", "TrainingRuntime", "trainingruntimes")
CLUSTER_TRAINING_RUNTIME = Kind(TRAINER, "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", namespaced=False)
JOBSET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", status=True)
JOB = Kind("batch", "v1", "Job", "jobs", status=True, categories=("all",))
POD = Kind("", "v1", "Pod", "pods", status=True, short_names=("po",), categories=("all",))
SERVICE = Kind("", "v1", "Service", "services", status=True, short_names=("svc",), categories=("all",))
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", short_names=("cm",))
SECRET = Kind("", "v1", "Secret", "secrets")
EVENT = Kind("", "v1", "Event", "events", short_names=("ev",))
NEW_EVENT = Kind("events.k8s.io", "v1", "Event", "events", short_names=("ev",))
"""Another version of EVENT; see `event_forms`."""
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False, status=True, short_names=("ns",))
NODE = Kind("", "v1", "Node", "nodes", namespaced=False, status=True, short_names=("no",))
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", status=True, short_names=("pvc",))
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", short_names=("sa",))
COSCHEDULING_GROUP = Kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", status=True)
VOLCANO_GROUP = Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", status=True)
POD_TEMPLATE = Kind("", "v1", "PodTemplate", "podtemplates")
RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", status=True, short_names=("quota",))
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
LIMIT_RANGE = Kind("", "v1", "LimitRange", "limitranges", short_names=("limits",))
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False, short_names=("pc",))
RUNTIME_CLASS = Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False, short_names=("sc",))
DEFINITION = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    status=True,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
RBAC = "rbac.authorization.k8s.io"
ROLE = Kind(RBAC, "v1", "Role", "roles")
ROLE_BINDING = Kind(RBAC, "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = Kind(RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
RBAC_KINDS = (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", status=True, short_names=("deploy",), categories=("all",))
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", short_names=("netpol",))
DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", status=True, short_names=("pdb",))

ALL = (
    TRAINJOB,
    TRAINING_RUNTIME,
    CLUSTER_TRAINING_RUNTIME,
    JOBSET,
    JOB,
    POD,
    SERVICE,
    CONFIG_MAP,
    SECRET,
    EVENT,
    NAMESPACE,
    NODE,
    CLAIM,
    SERVICE_ACCOUNT,
    LEASE,
    COSCHEDULING_GROUP,
    VOLCANO_GROUP,
    POD_TEMPLATE,
    LIMIT_RANGE,
    RESOURCE_QUOTA,
    ENDPOINT_SLICE,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    DEFINITION,
    NEW_EVENT,
    *RBAC_KINDS,
    DEPLOYMENT,
    NETWORK_POLICY,
    DISRUPTION_BUDGET,
)
_BY_GROUP_KIND = {(kind.group, kind.kind): kind for kind in ALL}


def kind_of(obj: Obj) -> Kind | None:
    """Return the kind of an object by its apiVersion and kind, or None if it is unknown."""
    group, _, _ = str(obj.get("apiVersion", "")).rpartition("/")
    return _BY_GROUP_KIND.get((group, str(obj.get("kind", ""))))
