"""Roles and bindings that grant the calls of a client, from the table of calls, and the Deployment of `trainwright guard`, which
ends jobs that nobody waits for; `trainwright rbac` prints them. Pure.

Bindings are named for the account that they bind: manifests for several namespaces and accounts can be applied to one cluster, and
none replaces another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.api.kinds import EVENT, JOBSET, LEASE, NAMESPACE, POD, RBAC, TRAINJOB
from trainwright.api.objects import Obj
from trainwright.datacache.objects import CLUSTER_RULES, account_objects
from trainwright.jobs.state.waiters import WORKFLOW
from trainwright.jobs.submit.rbac import CALLS_OF, CREATE_KEYS, CREDENTIALS_CALLS, READ_GUARD, READ_WORKFLOW, ApiCall
from trainwright.submission.controller_lease import GUARD_LEASE, GUARD_NAMESPACE
from trainwright.submission.jobs_client import Mode
from trainwright.text.yaml_writer import to_yaml

_GUARD_COMMENT = "# Only for the guard, which ends jobs that nobody waits for any more.\n"
_VERBS = ("create", "get", "list", "watch", "update", "patch", "delete")
NAME = "trainwright-guard"
RESOURCES = {"requests": {"cpu": "10m", "memory": "100Mi"}, "limits": {"memory": "256Mi"}}
"""Measured with 1,000 jobs: 70 MiB with kubernetes 37, as in the image, 92 to 94 with kubernetes 30. With jobs and pods
of 1.4 MiB of labels, the largest there are, it took 232 MiB with kubernetes 30: tenants decide how large their objects are."""
_GUARD = ("guard",)
_NO_RUNS = "a job is left running until its lease expires, although its run has ended"
LEASE_CALLS = (
    ApiCall("create", LEASE, _GUARD),
    *(ApiCall(verb, LEASE, _GUARD, name=GUARD_LEASE) for verb in ("get", "update")),
)
"""In the namespace of its Lease. Permission to create cannot be restricted to a name."""
GUARD_HOME: Obj = {"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": GUARD_NAMESPACE}}
READERS = "system:serviceaccounts"
"""Who may read the Lease of a guard of all namespaces: its clients are service accounts of any."""


@dataclass(frozen=True)
class ServiceAccount:
    """A service account to which permissions are granted."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}"


@dataclass(frozen=True)
class Extras:
    """What manifests contain on request.

    `mpi_flux` is what jobs of MPI and Flux runtimes need in the modes jobset and auto: to create Secrets. `credentials` is what
    Airflow's connections on the cluster need: to write Secrets, not to read them. `workflows` lets steps of Kubeflow Pipelines see
    whether their run has an exit handler. `guard_image` is the image of a guard, which ends jobs that nobody waits for any more;
    empty for none. It guards the namespace, or with `guards_all` all of them. `data_cache` is the account of initializers that start
    data caches.
    """

    mpi_flux: bool = False
    credentials: bool = False
    workflows: bool = False
    guard_image: str = ""
    guards_all: bool = False
    data_cache: bool = False


NOTHING_MORE = Extras()


def rbac_manifests(
    namespace: str,
    accounts: Sequence[ServiceAccount],
    mode: Mode = Mode.trainjob,
    extras: Extras = NOTHING_MORE,
) -> list[Obj]:
    """Return the roles and bindings with which these accounts can run jobs in a namespace, and what `extras` add.

    `mode` is trainjob, jobset, or auto for both. Raises KeyError for another mode.
    """
    manifests = [GUARD_HOME] if extras.guards_all else []
    for role in _roles(namespace, mode, extras):
        manifests += [role.manifest(), *(role.binding(to) for to in role.bound(accounts))]
    return manifests + _further(namespace, mode, extras)


def _roles(namespace: str, mode: Mode, extras: Extras) -> Iterator[_Role]:
    """Yield a role for each namespace that the calls are made in, and one for the whole cluster."""
    granted = [call for call in CALLS_OF[mode] if call.is_granted]
    suffix = "" if mode is Mode.trainjob else f"-{mode}"  # roles of the modes differ
    name = f"trainwright-steps{suffix}"
    yield _Role(name, namespace, tuple(call for call in granted if call.kind.namespaced and not call.namespace))
    yield _Role(name, "", tuple(call for call in granted if not call.kind.namespaced))
    if extras.mpi_flux and CREATE_KEYS in CALLS_OF[mode]:
        comment = "# Only for jobs of MPI and Flux runtimes: keys for their pods are created as Secrets, which are not read.\n"
        yield _Role(f"{name}-mpi-flux", namespace, (CREATE_KEYS,), comment)
    if extras.credentials:
        comment = "# Only for credentials of connections: they are written to Secrets of the jobs, which are not read.\n"
        yield _Role(f"{name}-credentials", namespace, CREDENTIALS_CALLS, comment)
    if extras.workflows:
        comment = "# Only for steps of Kubeflow Pipelines, which warn of a run without an exit handler. Optional.\n"
        yield _Role(f"{name}-workflows", namespace, (READ_WORKFLOW,), comment)
    if extras.guard_image:
        yield from _guard_roles("" if extras.guards_all else namespace, mode, suffix)
    for elsewhere in sorted({call.namespace for call in granted if call.namespace}):
        # another name, since the namespace may be that of the jobs
        calls_there = tuple(call for call in granted if call.namespace == elsewhere)
        comment = f"# Omit this role and its bindings if Trainer is not installed in the namespace {elsewhere}.\n"
        yield _Role(f"{name}-lease", elsewhere, calls_there, comment)


@dataclass(frozen=True)
class _Role:
    """A Role, or a ClusterRole if `namespace` is empty, with the calls that it grants. `only` is the one account or group with it."""

    name: str
    namespace: str
    calls: tuple[ApiCall, ...]
    comment: str = ""
    only: ServiceAccount | str = ""

    def bound(self, clients: Sequence[ServiceAccount]) -> Sequence[ServiceAccount | str]:
        """Return the accounts and groups that get this role."""
        return (self.only,) if self.only else clients

    @property
    def kind(self) -> str:
        return "Role" if self.namespace else "ClusterRole"

    def manifest(self) -> Obj:
        rules = [_merged_rule(calls) for calls in _calls_by_resource(self.calls)]
        return {"apiVersion": f"{RBAC}/v1", "kind": self.kind, "metadata": self._metadata(self.name), "rules": rules}

    def binding(self, to: ServiceAccount | str) -> Obj:
        """Return the binding to an account, or to a group."""
        if isinstance(to, ServiceAccount):
            subject = {"kind": "ServiceAccount", "name": to.name, "namespace": to.namespace}
        else:
            subject = {"kind": "Group", "apiGroup": RBAC, "name": to}
        return {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{self.kind}Binding",
            "metadata": self._metadata(f"{self.name}:{to}"),
            "roleRef": {"apiGroup": RBAC, "kind": self.kind, "name": self.name},
            "subjects": [subject],
        }

    def _metadata(self, name: str) -> Obj:
        return {"name": name, "namespace": self.namespace} if self.namespace else {"name": name}


def _merged_rule(calls: list[ApiCall]) -> Obj:
    return {**calls[0].rule(), "verbs": sorted({call.verb for call in calls}, key=_VERBS.index)}


def _calls_by_resource(calls: Sequence[ApiCall]) -> Iterator[list[ApiCall]]:
    groups: dict[tuple[str, str, str], list[ApiCall]] = {}
    for call in calls:
        groups.setdefault((call.kind.group, call.resource, call.name), []).append(call)
    yield from groups.values()


def _guard_roles(namespace: str, mode: Mode, suffix: str) -> Iterator[_Role]:
    """Yield the roles of the guard of a namespace; of all if it is empty, whose Lease every service account may read."""
    home = namespace or GUARD_NAMESPACE
    account = ServiceAccount(home, NAME)
    yield _Role(f"{NAME}{suffix}", namespace, guard_calls(mode), _GUARD_COMMENT, account)
    yield _Role(f"{NAME}-lease", home, LEASE_CALLS, _GUARD_COMMENT, account)
    if not namespace:
        yield _Role(f"{NAME}-readers", home, (READ_GUARD,), "# For steps, which warn if no guard is alive.\n", READERS)


def _further(namespace: str, mode: Mode, extras: Extras) -> list[Obj]:
    """Return the objects for other accounts than those of clients."""
    guarded = "" if extras.guards_all else namespace
    guard = guard_manifests(guarded, mode, extras.guard_image) if extras.guard_image else []
    return guard + (account_objects(namespace, CLUSTER_RULES) if extras.data_cache else [])


def rbac_yaml(
    namespace: str,
    accounts: Sequence[ServiceAccount],
    mode: Mode = Mode.trainjob,
    extras: Extras = NOTHING_MORE,
) -> str:
    """Return `rbac_manifests` as YAML documents, with comments on what needs each rule. Raises KeyError for another mode."""
    header = (
        f"# Permissions to run jobs in the namespace {namespace}, submission mode {mode}. Generated by `trainwright rbac`: for other\n"
        "# namespaces, service accounts and modes run it with theirs; none replaces another.\n"
    )
    documents = [to_yaml(GUARD_HOME)] if extras.guards_all else []
    for role in _roles(namespace, mode, extras):
        documents += [_commented(role), *(to_yaml(role.binding(to)) for to in role.bound(accounts))]
    documents += [to_yaml(manifest) for manifest in _further(namespace, mode, extras)]
    return header + "---\n".join(documents)


def _commented(role: _Role) -> str:
    """Return a role as YAML, with a comment before each rule."""
    text = role.comment + to_yaml({**role.manifest(), "rules": []}).replace("rules: []\n", "rules:\n")
    for calls in _calls_by_resource(role.calls):
        operations = dict.fromkeys(operation for call in calls for operation in call.operations)
        text += f"  # For: {', '.join(operations)}.\n"
        for impact in dict.fromkeys(call.impact for call in calls if call.impact):
            verbs = sorted({call.verb for call in calls if call.impact == impact}, key=_VERBS.index)
            text += f"  # Optional. Without {', '.join(verbs)}: {impact}.\n"
        text += "  - " + "\n    ".join(_fields(_merged_rule(calls))) + "\n"
    return text


def _fields(rule: Obj) -> Iterator[str]:
    """Yield the fields of a rule as YAML; names in rules need no quotes, except the empty one of the core group."""
    for field, values in rule.items():
        yield f"{field}: [{', '.join(value or chr(34) * 2 for value in values)}]"


def rule_line(call: ApiCall) -> str:
    """Return the rule that grants a call, as one line of YAML for the `rules` of a Role or ClusterRole."""
    return f"- {{{', '.join(_fields(call.rule()))}}}"


def role_of(call: ApiCall, namespace: str) -> str:
    """Return which kind of role must contain the rule of a call, for messages."""
    if not call.kind.namespaced:
        return "a ClusterRole"
    return f"a Role in the namespace {call.namespace or namespace}"


def guard_calls(mode: Mode) -> tuple[ApiCall, ...]:
    """Return the calls of a guard in the namespaces that it guards, without those for its Lease. Raises KeyError for another mode."""
    kinds = {Mode.trainjob: (TRAINJOB,), Mode.jobset: (JOBSET,), Mode.auto: (TRAINJOB, JOBSET)}[mode]
    return (
        *(ApiCall(verb, kind, _GUARD) for kind in kinds for verb in ("get", "list", "watch", "patch", "delete")),
        *(ApiCall(verb, WORKFLOW, _GUARD, _NO_RUNS) for verb in ("get", "list", "watch")),
        *(ApiCall(verb, POD, _GUARD, "an expired lease ends also a job whose step runs") for verb in ("list", "watch")),
        *(ApiCall(verb, EVENT, _GUARD, "only its log tells what it has done") for verb in ("create", "get", "patch")),
    )


def guard_manifests(namespace: str, mode: Mode, image: str) -> list[Obj]:
    """Return the account and the Deployment of a guard of a namespace; of all if it is empty, in `GUARD_HOME`."""
    home = namespace or GUARD_NAMESPACE
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": home}}
    return [account, _deployment(home, [f"--namespace={namespace}"] if namespace else [], mode, image)]


def _deployment(namespace: str, arguments: list[str], mode: Mode, image: str) -> Obj:
    labels = {"app.kubernetes.io/name": NAME}
    container = {
        "name": "guard",
        "image": image,
        "command": ["trainwright", "guard"],
        "args": [*arguments, f"--submission-mode={mode}"],
        "env": [{"name": "MALLOC_ARENA_MAX", "value": "2"}],
        "resources": RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
