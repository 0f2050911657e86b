"""The files of ConfigMap, Secret, downward API and projected volumes: what a pod's spec asks for, as content and modes by path.

Modes, order and messages are those of pkg/volume/{configmap,secret,projected,downwardapi} of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainwright.api.errors import ApiError
from trainwright.api.kinds import CONFIG_MAP, SECRET, Kind
from trainwright.api.objects import Obj, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.downward import Allocatable, field_text, resource_text
from trainwright.controlplane.node.volumes.api_access import AUTHORITY_CONFIG_MAP
from trainwright.controlplane.node.volumes.atomic_files import VolumeFile
from trainwright.controlplane.node.volumes.errors import VolumeError
from trainwright.controlplane.node.volumes.object_data import decode_data, get_or_none, not_found
from trainwright.controlplane.node.volumes.tokens import DEFAULT_SECONDS, TokenCache

PROJECTED = ("configMap", "secret", "downwardAPI", "projected")
"""The volume sources that become such files."""
_DEFAULT_MODE = 0o644
_PERMISSIONS = 0o777
_PRIVATE = 0o600
_NO_SUCH_KEY = {
    CONFIG_MAP.kind: "configmap references non-existent config key",
    SECRET.kind: "references non-existent secret key",
}


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
            except VolumeError as error:
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
            except ValueError as error:
                raise VolumeError(str(error)) from error
            yield item["path"], VolumeFile(text.encode(), _mode_of(item, mode, "mode"))

    def _token_file(self, source: Obj, mode: int) -> dict[str, VolumeFile]:
        """Return a token that only the pod's user, or its group, can read where the pod says which those are."""
        seconds = int(source.get("expirationSeconds") or DEFAULT_SECONDS)
        try:
            token = self.tokens.token(self.pod, source.get("audience") or "", seconds)
        except ApiError as error:
            raise VolumeError(f"failed to fetch token: {error.message}") from error
        user = only_user(self.pod["spec"])
        group = (self.pod["spec"].get("securityContext") or {}).get("fsGroup")
        private = user is not None or group is not None
        return {source["path"]: VolumeFile(token.encode(), _PRIVATE if private else mode, user)}


def only_user(spec: Obj) -> int | None:
    """Return the user id that all containers of a pod are told to run as, or None. Source: `FsUserFrom` of Kubernetes."""
    default = (spec.get("securityContext") or {}).get("runAsUser")
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    users = {(container.get("securityContext") or {}).get("runAsUser", default) for container in containers}
    return users.pop() if len(users) == 1 else None


def _mode_of(source: Obj, default: int, field: str = "defaultMode") -> int:
    mode = source.get(field)
    return default if mode is None else int(mode) & _PERMISSIONS
