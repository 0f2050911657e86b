"""The files of ConfigMap, Secret, downward API and projected volumes: what a pod's spec asks for, as content and modes by path.

One of them is not in the spec: what a pod needs to reach the API server as its service account (a token, the authority's certificate
and its namespace). A cluster's ServiceAccount admission adds this volume to the pod; here the node does, and the spec stays as it was
written. Tokens are kept until 80 % of their life is over: a new one for each look would rewrite volumes all the time.
Sources: pkg/volume/{configmap,secret,projected,downwardapi}, plugin/pkg/admission/serviceaccount and
pkg/kubelet/token/token_manager.go of Kubernetes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.kinds import CONFIG_MAP, SECRET, SERVICE_ACCOUNT, Kind
from trainwright.api.objects import Obj, account_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.downward import Allocatable, field_text, resource_text
from trainwright.controlplane.node.isolation.plan import ContainerMount
from trainwright.controlplane.node.volumes.files import VolumeFile
from trainwright.controlplane.node.volumes.references import VolumeError, decode_data, get_or_none, not_found

PROJECTED = ("configMap", "secret", "downwardAPI", "projected")
"""The volume sources that become such files."""
_DEFAULT_MODE = 0o644
_PERMISSIONS = 0o777
_PRIVATE = 0o600
_NO_SUCH_KEY = {
    CONFIG_MAP.kind: "configmap references non-existent config key",
    SECRET.kind: "references non-existent secret key",
}
API_ACCESS_VOLUME = "kube-api-access"
AUTHORITY_CONFIG_MAP = "kube-root-ca.crt"
_TOKEN_SECONDS = 3607
IssueToken = Callable[[str, Obj, int], str]
"""Maps `(audience, pod, validity in seconds)` to a token. Raises ApiError, as a request for a token may."""
DEFAULT_SECONDS = 3600
_LONGEST_SECONDS = 24 * 3600
"""A token is renewed after a day, however long it would be valid."""
_USED_SHARE = 0.8


@dataclass(frozen=True)
class Projector:
    """Reads what volumes of one pod contain. `allocatable` returns the node's resources, the limits of containers without any.

    `authority` is the content of the ConfigMap kube-root-ca.crt, which a cluster puts into every namespace.
    """

    cluster: Cluster
    pod: Obj
    tokens: TokenCache
    allocatable: Allocatable
    authority: str = ""

    def files(self, volume: Obj) -> dict[str, VolumeFile]:
        """Return the files of a volume by path. Raises VolumeError for what is missing; several problems in one message."""
        projected = volume.get("projected")
        if projected is None:
            source = next(name for name in PROJECTED if name in volume)
            return dict(self._source_files({source: volume[source]}, _mode_of(volume[source], _DEFAULT_MODE)))
        mode = _mode_of(projected, _DEFAULT_MODE)
        files: dict[str, VolumeFile] = {}
        problems: dict[str, None] = {}
        for source in projected.get("sources") or []:
            try:
                files |= self._source_files(source, mode)
            except VolumeError as error:  # all problems are reported at once, each once
                problems[str(error)] = None
        if problems:
            raise VolumeError(next(iter(problems)) if len(problems) == 1 else f"[{', '.join(problems)}]")
        return files

    def _source_files(self, source: Obj, mode: int) -> Mapping[str, VolumeFile]:
        if "configMap" in source:
            return self._object_files(CONFIG_MAP, source["configMap"], source["configMap"].get("name"), mode)
        if "secret" in source:
            body = source["secret"]
            return self._object_files(SECRET, body, body.get("secretName") or body.get("name"), mode)
        if "downwardAPI" in source:
            return dict(self._downward_files(source["downwardAPI"].get("items") or [], mode))
        if "serviceAccountToken" in source:
            return self._token_file(source["serviceAccountToken"], mode)
        raise VolumeError(f"this node cannot project {', '.join(source) or 'an empty source'}")

    def _object_files(self, kind: Kind, source: Obj, name: str | None, mode: int) -> dict[str, VolumeFile]:
        """Return all keys of a ConfigMap or Secret, or the listed ones at their paths."""
        obj = get_or_none(self.cluster, kind, name or "", namespace_of(self.pod))
        if obj is None and self.authority and (kind, name) == (CONFIG_MAP, AUTHORITY_CONFIG_MAP):
            obj = {"kind": kind.kind, "data": {"ca.crt": self.authority}}
        if obj is None and not source.get("optional"):
            raise VolumeError(not_found(kind, name or ""))
        data = decode_data(obj) if obj else {}
        items = source.get("items") or []
        if not items:
            return {key: VolumeFile(content, mode) for key, content in data.items()}
        missing = [item["key"] for item in items if item["key"] not in data]
        if missing and not source.get("optional"):
            raise VolumeError(f"{_NO_SUCH_KEY[kind.kind]}: {missing[0]}")
        return {
            item["path"]: VolumeFile(data[item["key"]], _mode_of(item, mode, "mode")) for item in items if item["key"] in data
        }

    def _downward_files(self, items: list[Obj], mode: int) -> Iterator[tuple[str, VolumeFile]]:
        for item in items:
            try:
                if "fieldRef" in item:
                    text = field_text(self.pod, item["fieldRef"]["fieldPath"])
                else:
                    text = resource_text(self.pod, item.get("resourceFieldRef") or {}, self.allocatable)
            except ValueError as error:  # a field or resource that the downward API does not have
                raise VolumeError(str(error)) from error
            yield item["path"], VolumeFile(text.encode(), _mode_of(item, mode, "mode"))

    def _token_file(self, source: Obj, mode: int) -> dict[str, VolumeFile]:
        """Return a token that only the pod's user, or its group, can read where the pod says which those are."""
        seconds = int(source.get("expirationSeconds") or DEFAULT_SECONDS)
        try:
            token = self.tokens.token(self.pod, source.get("audience") or "", seconds)
        except ApiError as error:  # retried with the pod's next step
            raise VolumeError(f"failed to fetch token: {error.message}") from error
        user = only_user(self.pod["spec"])
        group = (self.pod["spec"].get("securityContext") or {}).get("fsGroup")
        private = user is not None or group is not None
        return {source["path"]: VolumeFile(token.encode(), _PRIVATE if private else mode, user)}


def _mode_of(source: Obj, default: int, field: str = "defaultMode") -> int:
    mode = source.get(field)
    return default if mode is None else int(mode) & _PERMISSIONS


def only_user(spec: Obj) -> int | None:
    """Return the user id that all containers of a pod are told to run as, or None. Source: `FsUserFrom` of Kubernetes."""
    default = (spec.get("securityContext") or {}).get("runAsUser")
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    users = {(container.get("securityContext") or {}).get("runAsUser", default) for container in containers}
    return users.pop() if len(users) == 1 else None


def api_access_volumes(cluster: Cluster, pod: Obj) -> list[Obj]:
    """Return the volume, or nothing if the pod or its service account does not want it, or the pod has one of this name."""
    wanted = pod["spec"].get("automountServiceAccountToken")
    if wanted is None:
        account = get_or_none(cluster, SERVICE_ACCOUNT, account_of(pod), namespace_of(pod)) or {}
        wanted = account.get("automountServiceAccountToken")
    if wanted is False or any(volume["name"] == API_ACCESS_VOLUME for volume in pod["spec"].get("volumes") or []):
        return []
    token = {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}}
    authority = {"configMap": {"name": AUTHORITY_CONFIG_MAP, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    namespace = {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}
    return [{"name": API_ACCESS_VOLUME, "projected": {"sources": [token, authority, namespace]}}]


def api_access_mounts(container: Obj, folder: Path | None) -> list[ContainerMount]:
    """Return the mount of the volume, if there is one, in a container that mounts nothing else there."""
    taken = {mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts") or []}
    return (
        []
        if folder is None or names.SERVICE_ACCOUNT_PATH in taken
        else [ContainerMount(names.SERVICE_ACCOUNT_PATH, folder, read_only=True)]
    )


@dataclass
class TokenCache:
    """The tokens that were issued, in memory only. `clock` returns seconds of any origin. Thread-safe.

    `longest` is the most seconds that the API server makes a token valid for.
    """

    issue: IssueToken
    clock: Callable[[], float] = time.monotonic
    longest: int | None = None
    _tokens: dict[tuple[str, str, int], tuple[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def token(self, pod: Obj, audience: str, seconds: int) -> str:
        """Return a token for the audience (empty: the API server) that is valid for at least a fifth of `seconds`. Raises ApiError."""
        seconds = seconds if self.longest is None else min(seconds, self.longest)
        key = (uid_of(pod), audience, seconds)
        with self._lock:
            token, renewal = self._tokens.get(key, ("", 0.0))
            if not token or self.clock() >= renewal:
                token = self.issue(audience, pod, seconds)
                self._tokens[key] = (token, self.clock() + min(seconds * _USED_SHARE, _LONGEST_SECONDS))
            return token

    def forget(self, pod_uid: str) -> None:
        """Drop the tokens of a pod that is gone."""
        with self._lock:
            for key in [key for key in self._tokens if key[0] == pod_uid]:
                del self._tokens[key]
