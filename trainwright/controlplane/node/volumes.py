"""Creates a pod's volumes as folders and files: emptyDir, claims, ConfigMaps, Secrets, tokens, the downward API."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLAIM, CONFIG_MAP, SECRET, Kind
from trainwright.api.names import HOST_PATH_ANNOTATION
from trainwright.api.objects import Obj, annotations_of, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.downward import field_text

IssueToken = Callable[[str, Obj, int], str]
"""Maps `(audience, pod, validity in seconds)` to a token."""


class VolumeError(Exception):
    """A volume cannot be created; the message names it and the reason. It is the pod's waiting message."""


@dataclass(frozen=True)
class VolumeMaker:
    """Creates the folders of a pod's volumes. `claims` is the folder of the embedded cluster's claims."""

    cluster: Cluster
    claims: Path
    issue_token: IssueToken

    def make(self, pod: Obj, folder: Path) -> dict[str, Path]:
        """Create or refresh all volumes of the pod. Returns their paths by name. Data in them is kept.

        Raises VolumeError.
        """
        paths: dict[str, Path] = {}
        for volume in pod["spec"].get("volumes") or []:
            name = str(volume["name"])
            target = folder / "volumes" / name
            paths[name] = self._make(pod, volume, target)
        return paths

    def _make(self, pod: Obj, volume: Obj, target: Path) -> Path:
        if "persistentVolumeClaim" in volume:
            return self._claim(volume["persistentVolumeClaim"]["claimName"], namespace_of(pod))
        if "hostPath" in volume:
            return self._host_path(volume["name"], volume["hostPath"])
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if "emptyDir" in volume:
            return target
        for source in [volume, *((volume.get("projected") or {}).get("sources") or [])]:
            for path, content in self._files(pod, volume["name"], source):
                _write(target, path, content, _mode(volume, source, path))
        return target

    def _claim(self, name: str, namespace: str) -> Path:
        try:
            claim = self.cluster.get(CLAIM, name, namespace)
        except NotFound as error:
            raise VolumeError(f"persistentvolumeclaim {name!r} not found in the namespace {namespace!r}") from error
        chosen = annotations_of(claim).get(HOST_PATH_ANNOTATION)
        path = Path(chosen) if chosen else self.claims / namespace / name
        if not path.is_absolute():
            raise VolumeError(
                f"persistentvolumeclaim {name!r}: the annotation {HOST_PATH_ANNOTATION} must be an absolute path, got {chosen!r}"
            )
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def _host_path(self, name: str, source: Obj) -> Path:
        path = Path(source["path"])
        if source.get("type") == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            raise VolumeError(f"volume {name!r}: hostPath {path} does not exist")
        return path

    def _files(self, pod: Obj, volume: str, source: Obj) -> list[tuple[str, bytes]]:
        if "configMap" in source:
            return self._projected_files(CONFIG_MAP, pod, volume, source["configMap"], "name")
        if "secret" in source:
            key = "secretName" if "secretName" in source["secret"] else "name"
            return self._projected_files(SECRET, pod, volume, source["secret"], key)
        if "serviceAccountToken" in source:
            projection = source["serviceAccountToken"]
            token = self.issue_token(projection.get("audience") or "", pod, int(projection.get("expirationSeconds") or 3600))
            return [(projection["path"], token.encode())]
        if "downwardAPI" in source:
            items = source["downwardAPI"].get("items") or []
            return [
                (item["path"], field_text(pod, item["fieldRef"]["fieldPath"]).encode()) for item in items if item.get("fieldRef")
            ]
        return []

    def _projected_files(self, kind: Kind, pod: Obj, volume: str, source: Obj, name_key: str) -> list[tuple[str, bytes]]:
        """Return the files of a ConfigMap or Secret: all keys, or the listed items with their paths."""
        name = str(source.get(name_key) or "")
        try:
            obj = self.cluster.get(kind, name, namespace_of(pod))
        except NotFound as error:
            if source.get("optional"):
                return []
            raise VolumeError(f"volume {volume!r}: {kind.kind} {name!r} not found") from error
        data = decode_data(obj)
        if not source.get("items"):
            return list(data.items())
        missing = [item["key"] for item in source["items"] if item["key"] not in data]
        if missing and not source.get("optional"):
            raise VolumeError(f"volume {volume!r}: {kind.kind} {name_of(obj)!r} has no key {missing[0]!r}")
        return [(item["path"], data[item["key"]]) for item in source["items"] if item["key"] in data]


def decode_data(obj: Obj) -> dict[str, bytes]:
    """Return the contents of a ConfigMap or Secret as bytes."""
    if obj.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    data = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
    return data | {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}


def _mode(volume: Obj, source: Obj, path: str) -> int:
    """Return the file mode set by the pod, restricted to the owner."""
    body: Obj = next((source[name] for name in ("configMap", "secret", "downwardAPI") if name in source), {})
    item: Obj = next((entry for entry in body.get("items") or [] if entry.get("path") == path), {})
    mode = item.get("mode") or body.get("defaultMode") or (volume.get("projected") or {}).get("defaultMode") or 0o600
    return int(mode) & 0o700


def _write(root: Path, relative: str, content: bytes, mode: int) -> None:
    """Write a file below `root`, atomically. Raises VolumeError for a path outside of it."""
    path = (root / relative).resolve()
    if not path.is_relative_to(root.resolve()):
        raise VolumeError(f"the path {relative!r} is outside of its volume")
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(descriptor, mode)
    os.replace(temporary, path)
