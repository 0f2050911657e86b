"""The objects of a data cache: a JobSet in place of upstream's LeaderWorkerSet, the Service of its head, and an account for both.

The runtime `torch-distributed-with-cache` names the account. Upstream's Role has no rule for TrainJobs, which the initializer reads.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api import names
from trainwright.api.kinds import JOBSET, POD, RBAC, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT, TRAINJOB
from trainwright.api.objects import Obj, copy_of, namespace_of, owner_reference
from trainwright.api.quantities import parse_quantity
from trainwright.datacache.settings import VARIABLES, CacheSettings

PORT, HEALTH_PORT = 50051, 8080
"""As in `trainwright.datacache.flight`, which requires pyarrow."""
HEAD, WORKER = "head", "worker"
CACHE_LABEL = "trainwright.dev/data-cache"
"""Its value is the name of the TrainJob."""
ACCOUNT = "kubeflow-trainer-cache-initializer"
RULES = (
    {"apiGroups": [TRAINJOB.group], "resources": [TRAINJOB.plural], "verbs": ["get"]},
    {"apiGroups": [JOBSET.group], "resources": [JOBSET.plural], "verbs": ["create", "get"]},
    {"apiGroups": [SERVICE.group], "resources": [SERVICE.plural], "verbs": ["create", "get"]},
    {"apiGroups": [POD.group], "resources": [POD.plural], "verbs": ["list"]},
)
CLUSTER_RULES = (
    *RULES,
    {"apiGroups": ["leaderworkerset.x-k8s.io"], "resources": ["leaderworkersets"], "verbs": ["create", "get", "list", "watch"]},
    {"apiGroups": [SERVICE_ACCOUNT.group], "resources": [SERVICE_ACCOUNT.plural], "verbs": ["create", "get", "delete"]},
)
"""With what Trainer's initializer needs besides: it makes a LeaderWorkerSet and a ServiceAccount."""


def cache_objects(settings: CacheSettings, trainjob: Obj) -> list[Obj]:
    """Return the JobSet and the Service, both owned by the TrainJob."""
    labels = {CACHE_LABEL: settings.job}
    owned = {"namespace": namespace_of(trainjob), "labels": labels, "ownerReferences": [owner_reference(trainjob)]}
    jobs = [_job(settings, HEAD, trainjob), _job(settings, WORKER, trainjob)]
    jobset = {
        "apiVersion": JOBSET.api_version,
        "kind": JOBSET.kind,
        "metadata": {"name": settings.name, **owned},
        # A pod that has lost its rows cannot go on: readers must notice.
        "spec": {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": jobs},
    }
    service = {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": {"name": settings.service, **owned},
        "spec": {"selector": head_labels(settings), "ports": [{"name": "grpc", "port": PORT, "targetPort": PORT}]},
    }
    return [jobset, service]


def head_labels(settings: CacheSettings) -> dict[str, str]:
    """Return the labels of the head's pod, as upstream."""
    return {"app": f"{settings.name}-head"}


def _job(settings: CacheSettings, role: str, trainjob: Obj) -> Obj:
    count = 1 if role == HEAD else settings.size - 1
    cpu, memory = (settings.head_cpu, settings.head_mem) if role == HEAD else (settings.worker_cpu, settings.worker_mem)
    resources = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    container = {
        "name": role,
        "image": settings.image,
        "command": ["python", "-m", "trainwright.datacache", role],
        "args": ["$(POD_IP)", str(PORT)],  # never all addresses: other caches may be on the same machine
        "env": [*_given_variables(trainjob), *_own_variables(settings, role)],
        "ports": [{"name": "grpc", "containerPort": PORT}, {"name": "health", "containerPort": HEALTH_PORT}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": HEALTH_PORT}, "periodSeconds": 1},
        "resources": {"requests": resources, "limits": resources},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if secret := _initializer(trainjob).get("secretRef"):
        container["envFrom"] = [{"secretRef": {"name": secret["name"]}}]
    labels = {CACHE_LABEL: settings.job} | (head_labels(settings) if role == HEAD else {})
    pod_spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod_spec}
    job_spec = {"parallelism": count, "completions": count, "backoffLimit": 0, "template": template}
    return {"name": role, "replicas": 1, "template": {"spec": job_spec}}


def _given_variables(trainjob: Obj) -> list[Obj]:
    """Return the variables that the TrainJob gives to its initializer besides those of the cache, such as those of a store."""
    own = (*VARIABLES, names.CACHE_KEY_VARIABLE, names.CACHE_ASSIGN_VARIABLE)
    return [copy_of(entry) for entry in _initializer(trainjob).get("env") or [] if entry["name"] not in own]


def _own_variables(settings: CacheSettings, role: str) -> list[Obj]:
    workers = settings.size - 1
    values = {"METADATA_LOC": settings.metadata_loc, "SCHEMA_NAME": settings.schema, "TABLE_NAME": settings.table}
    if role == HEAD:
        hosts = (f"{settings.name}-{WORKER}-0-{index}.{settings.name}:{PORT}" for index in range(workers))
        values |= {"WORKERS": ",".join(hosts), "START_SECONDS": str(settings.start_seconds)}
    else:
        limit = parse_quantity(settings.worker_mem).ceiling()
        values |= {"WORKER_MEM_BYTES": str(limit), "WORKER_COUNT": str(workers)}
    secrets = {names.CACHE_ASSIGN_VARIABLE: names.CACHE_ASSIGN_ENTRY}
    if settings.is_open:
        values[names.CACHE_OPEN_VARIABLE] = "true"
    else:
        secrets[names.CACHE_KEY_VARIABLE] = names.CACHE_KEY_ENTRY
    sources: list[tuple[str, Obj]] = [("POD_IP", {"fieldRef": {"fieldPath": "status.podIP"}})]
    secret = names.cache_secret(settings.job)
    sources += ((name, {"secretKeyRef": {"name": secret, "key": entry}}) for name, entry in secrets.items())
    referred = [{"name": name, "valueFrom": source} for name, source in sources]
    return [*referred, *({"name": name, "value": value} for name, value in values.items())]


def _initializer(trainjob: Obj) -> Obj:
    found: Obj = (trainjob["spec"].get("initializer") or {}).get("dataset") or {}
    return found


def account_objects(namespace: str, rules: Sequence[Obj] = RULES) -> list[Obj]:
    """Return the ServiceAccount, its Role with these rules and the binding of both, for TrainJobs in `namespace`."""
    metadata = {"name": ACCOUNT, "namespace": namespace}
    subject = {"kind": SERVICE_ACCOUNT.kind, **metadata}
    return [
        {"apiVersion": SERVICE_ACCOUNT.api_version, "kind": SERVICE_ACCOUNT.kind, "metadata": metadata},
        {"apiVersion": ROLE.api_version, "kind": ROLE.kind, "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": ROLE_BINDING.api_version,
            "kind": ROLE_BINDING.kind,
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": ROLE.kind, "name": ACCOUNT},
            "subjects": [subject],
        },
    ]
