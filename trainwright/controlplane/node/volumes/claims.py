"""Volumes that are folders of this machine: claims, and hostPath volumes.

A claim's folder is below the node's home, or where an annotation of the claim says. The types of hostPath volumes are checked in the
words of a kubelet (pkg/volume/hostpath/host_path.go).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from trainwright.api.errors import AlreadyExists
from trainwright.api.kinds import CLAIM, POD
from trainwright.api.names import HOST_FOLDER_ANNOTATION, HOST_PATH_ANNOTATION
from trainwright.api.objects import Obj, annotations_of, copy_of, is_controlled_by, name_of, namespace_of, owner_reference
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.host_paths import HostPathPolicy, HostPathRefused, take_folder
from trainwright.controlplane.node.volumes.files import VOLUME_MODE, belongs_to_group, give_to_group, make_folder
from trainwright.controlplane.node.volumes.references import VolumeError, get_or_none, not_found

_FRESH_MODE = 0o700
"""Of the folders that the controller makes that annotates claims. Containers may make theirs so too, once they have put data in it."""
_HOST_PATH_TYPES: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def claim_folder(claim: Obj, policy: HostPathPolicy) -> Path:
    """Return the real path of a claim's folder, created if it is missing. One that the annotation names is otherwise left as it is.

    Raises VolumeError, OSError.
    """
    name, path = name_of(claim), _path_of(claim, policy)
    if not path.is_absolute():
        raise VolumeError(
            f'persistentvolumeclaim "{name}": the annotation {HOST_PATH_ANNOTATION} must be an absolute path, got {path}'
        )
    if not _is_own(claim, policy):
        try:
            below = annotations_of(claim).get(HOST_FOLDER_ANNOTATION, "")
            policy.check_mounted(path, below)
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            return policy.check_mounted(path, below)  # again, because what was checked may have been replaced by a link
        except HostPathRefused as error:
            raise VolumeError(f'persistentvolumeclaim "{name}": {error}') from error
    take_folder(claim, path, policy.claims)
    make_folder(path, VOLUME_MODE)
    if stat.S_IMODE(path.stat().st_mode) == _FRESH_MODE and not os.listdir(path):
        path.chmod(VOLUME_MODE)
    return path.resolve()


def _path_of(claim: Obj, policy: HostPathPolicy) -> Path:
    chosen = annotations_of(claim).get(HOST_PATH_ANNOTATION)
    return Path(chosen) if chosen else _own(claim, policy)


def _own(claim: Obj, policy: HostPathPolicy) -> Path:
    return policy.own_folder(namespace_of(claim), name_of(claim)).absolute()


def _is_own(claim: Obj, policy: HostPathPolicy) -> bool:
    return _path_of(claim, policy) == _own(claim, policy)


def give_claim(claim: Obj, policy: HostPathPolicy, group: int) -> None:
    """Give the folder of a claim to a pod's fsGroup, unless it has been already, or is a folder of the user's. Raises OSError."""
    path = _path_of(claim, policy)
    if _is_own(claim, policy) and not belongs_to_group(path, group):
        give_to_group(path, group)


def find_claim(cluster: Cluster, name: str, namespace: str) -> Obj:
    """Return a claim. Raises VolumeError if it does not exist."""
    claim = get_or_none(cluster, CLAIM, name, namespace)
    if claim is None:
        raise VolumeError(not_found(CLAIM, name))
    return claim


def ephemeral_claim(cluster: Cluster, pod: Obj, volume: Obj, policy: HostPathPolicy) -> Obj:
    """Return the claim `POD-VOLUME` of a generic ephemeral volume, created from its template; it is deleted with the pod.

    Raises VolumeError if a claim of that name is not the pod's, or the template chooses a folder that not everyone may choose.
    """
    name, namespace = f"{name_of(pod)}-{volume['name']}", namespace_of(pod)
    claim = get_or_none(cluster, CLAIM, name, namespace)
    if claim is None:
        template = volume["ephemeral"].get("volumeClaimTemplate") or {}
        _check_template(template, policy)
        claim = _create(cluster, pod, name, template)
    if not is_controlled_by(claim, pod):
        raise VolumeError(f"PVC {namespace}/{name} was not created for pod {namespace}/{name_of(pod)} (pod is not owner)")
    return claim


def _check_template(template: Obj, policy: HostPathPolicy) -> None:
    """Raise VolumeError for a folder that the author of a pod may not choose: the claim is created by the node, who may."""
    if path := annotations_of(template).get(HOST_PATH_ANNOTATION):
        try:
            policy.check_chosen(Path(path))
        except HostPathRefused as error:
            raise VolumeError(f"the annotation {HOST_PATH_ANNOTATION} of the template: {error}") from error


def _create(cluster: Cluster, pod: Obj, name: str, template: Obj) -> Obj:
    metadata = {
        key: copy_of(value) for key, value in (template.get("metadata") or {}).items() if key in ("labels", "annotations")
    }
    owner = owner_reference({"apiVersion": POD.api_version, "kind": POD.kind, **pod})
    claim = {
        "apiVersion": CLAIM.api_version,
        "kind": CLAIM.kind,
        "metadata": {**metadata, "name": name, "namespace": namespace_of(pod), "ownerReferences": [owner]},
        "spec": copy_of(template.get("spec") or {}),
    }
    try:
        return cluster.create(claim)
    except AlreadyExists:  # created since it was looked for; the caller checks whose it is
        return find_claim(cluster, name, namespace_of(pod))


def host_path(source: Obj, policy: HostPathPolicy) -> Path:
    """Return the real path of a hostPath volume, created if its type says so. Without a type a missing path becomes a folder.

    Raises VolumeError if the path is not of its type, cannot be created, or would show what is a cluster's own.
    """
    path, kind = Path(source["path"]), source.get("type") or ""
    if ".." in path.parts:
        raise VolumeError(f"invalid HostPath `{path}`: must not contain '..'")
    if kind and kind not in _HOST_PATH_TYPES:
        raise VolumeError(f"{kind} is an invalid volume type")
    try:
        policy.check_outside_own(path)
        if not path.exists():
            _create_host_path(path, kind)
        if kind and not _is_of_type(path, kind):
            raise VolumeError(f"hostPath type check failed: {path} is not {_HOST_PATH_TYPES[kind][1]}")
        return policy.check_outside_own(path)  # again, because what was checked may have been replaced by a link
    except HostPathRefused as error:
        raise VolumeError(f"hostPath {error}") from error
    except OSError as error:
        raise VolumeError(f"hostPath {path} cannot be used: {error.strerror}") from error


def _create_host_path(path: Path, kind: str) -> None:
    if kind in ("", "DirectoryOrCreate"):  # without a type it is the container runtime that creates it
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def _is_of_type(path: Path, kind: str) -> bool:
    try:
        return _HOST_PATH_TYPES[kind][0](path.stat().st_mode)
    except FileNotFoundError:  # missing, and of a type that is not created
        return False
