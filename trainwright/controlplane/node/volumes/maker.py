"""Makes the volumes of a pod on this machine, one folder or file for each, and keeps their content up to date."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.api.objects import Obj, namespace_of, uid_of
from trainwright.api.quantities import parse_quantity
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.host_paths import HostPathPolicy
from trainwright.controlplane.node.volumes.claims import claim_folder, ephemeral_claim, find_claim, give_claim, host_path
from trainwright.controlplane.node.volumes.files import VOLUME_MODE, make_folder, write_files
from trainwright.controlplane.node.volumes.memory import MemoryFolders
from trainwright.controlplane.node.volumes.projections import PROJECTED, IssueToken, Projector, TokenCache, api_access_volumes
from trainwright.controlplane.node.volumes.references import VolumeError, allocatable_of

_MEMORY = "Memory"
_MEDIA = ("", _MEMORY)


@dataclass(frozen=True)
class MadeVolume:
    """A volume on this machine. `size_limit` is in bytes; `medium` is that of an emptyDir."""

    path: Path
    """Without symbolic links in what the operator has chosen."""
    read_only: bool = False
    medium: str = ""
    size_limit: int | None = None
    is_projected: bool = False
    """Whether its content is the node's (ConfigMap, Secret, ...), so that containers cannot have put links into it."""


@dataclass(frozen=True)
class VolumeMaker:
    """Makes volumes. `claims` is the folder of the cluster's claims, below the node's home; `memory` defaults to the home's own.

    `authority` is the certificate that pods verify the API server with; without it they get no access to it by themselves.
    `host_paths` says which folders of the machine they may be; by default those outside of `claims`.
    """

    cluster: Cluster
    claims: Path
    issue_token: IssueToken
    memory: MemoryFolders | None = None
    authority: str = ""
    host_paths: HostPathPolicy | None = None
    token_seconds: int | None = None
    """The most seconds that the API server makes a token valid for."""
    _tokens: TokenCache = field(init=False)
    _memory: MemoryFolders = field(init=False)
    _policy: HostPathPolicy = field(init=False)
    _given: set[tuple[str, str]] = field(default_factory=set, init=False)
    """Pods and the folders of their claims that were given to their group."""
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tokens", TokenCache(self.issue_token, longest=self.token_seconds))
        object.__setattr__(self, "_policy", self.host_paths or HostPathPolicy(self.claims, self.claims))
        object.__setattr__(self, "_memory", self.memory or MemoryFolders.of_home(self.claims.parent))

    def make(self, pod: Obj, folder: Path) -> dict[str, MadeVolume]:
        """Make or refresh all volumes of a pod whose files are in `folder`. Returns them by name; data in them is kept.

        Called before a container starts and, as tokens and ConfigMaps change, every minute. What is unchanged is not rewritten.
        All volumes are tried. Raises the first VolumeError, with the name of its volume.
        """
        made: dict[str, MadeVolume] = {}
        failed: list[VolumeError] = []
        access = api_access_volumes(self.cluster, pod) if self.authority else []
        for volume in [*(pod["spec"].get("volumes") or []), *access]:
            name = str(volume["name"])
            try:
                made[name] = self._make(pod, volume, folder / "volumes" / name)
            except VolumeError as error:  # the others are made all the same
                error.volume = name
                failed.append(error)
            except (OSError, ValueError, OverflowError) as error:  # a full disk; a NUL in a path; an id beyond the mapped ones
                # Without paths of the machine.
                why = os.strerror(error.errno or errno.EIO) if isinstance(error, OSError) else error
                failed.append(VolumeError(f"this node cannot make it: {why}", name))
        if failed:
            raise failed[0]
        return made

    def remove(self, pod_uid: str) -> None:
        """Remove what a deleted pod has outside of its folder: volumes in memory, and its tokens. Raises OSError."""
        self._tokens.forget(pod_uid)
        self._given.difference_update({mounted for mounted in self._given.copy() if mounted[0] == pod_uid})
        self._memory.remove(pod_uid)
        self._memory.of_secrets.remove(pod_uid)

    def remove_others(self, known: Set[str]) -> None:
        """Remove what pods other than those with the UIDs `known` have in memory. Raises OSError."""
        self._memory.remove_others(known)
        self._memory.of_secrets.remove_others(known)

    def close(self) -> None:
        """Leave no Secrets, and nothing empty, behind outside of the home. All containers must have ended."""
        self._memory.of_secrets.remove_all()
        self._memory.close()

    def _make(self, pod: Obj, volume: Obj, target: Path) -> MadeVolume:
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if source := volume.get("persistentVolumeClaim"):
            claim = find_claim(self.cluster, source["claimName"], namespace_of(pod))
            return self._claim(pod, claim, group, read_only=bool(source.get("readOnly")))
        if "ephemeral" in volume:
            return self._claim(pod, ephemeral_claim(self.cluster, pod, volume, self._policy), group, read_only=False)
        if "hostPath" in volume:
            return MadeVolume(host_path(volume["hostPath"], self._policy))
        if any(name in volume for name in PROJECTED):
            return self._project(pod, volume, target, group)
        if "emptyDir" in volume or volume.keys() <= {"name"}:
            return self._empty(pod, volume["name"], volume.get("emptyDir") or {}, target, group)
        raise VolumeError(_cannot_mount(volume))

    def _claim(self, pod: Obj, claim: Obj, group: int | None, *, read_only: bool) -> MadeVolume:
        path = claim_folder(claim, self._policy)
        mounted = (uid_of(pod), str(path))
        # Once for each pod: its containers may then change modes.
        if group is not None and not read_only and mounted not in self._given:
            give_claim(claim, self._policy, group)
            self._given.add(mounted)
        return MadeVolume(path, read_only=read_only)

    def _empty(self, pod: Obj, name: str, source: Obj, target: Path, group: int | None) -> MadeVolume:
        medium = source.get("medium") or ""
        if medium not in _MEDIA:
            raise VolumeError(f'unknown storage medium "{medium}": this node has disk and {_MEMORY}')
        amount = parse_quantity(source["sizeLimit"]).ceiling() if source.get("sizeLimit") is not None else 0
        limit = amount if amount > 0 else None
        if medium == _MEMORY:
            target = self._memory.make(uid_of(pod), name, group, limit)
        else:
            make_folder(target, VOLUME_MODE, group)
        return MadeVolume(target, medium=medium, size_limit=limit)

    def _project(self, pod: Obj, volume: Obj, target: Path, group: int | None) -> MadeVolume:
        projector = Projector(self.cluster, pod, self._tokens, lambda: allocatable_of(self.cluster, pod), self.authority)
        files = projector.files(volume)
        sources = [volume, *((volume.get("projected") or {}).get("sources") or [])]
        if any(name in source for source in sources for name in ("secret", "serviceAccountToken")):  # never on the disk
            target = self._memory.of_secrets.make(uid_of(pod), volume["name"], group)
        else:
            make_folder(target, VOLUME_MODE, group)
        with self._writing:  # a container that starts and the minutely refresh may meet
            write_files(target, files, group)
        return MadeVolume(target, read_only=True, is_projected=True)


def _cannot_mount(volume: Obj) -> str:
    """Return the message for a source that needs a driver; a node has those that are installed on it, and this one has none."""
    source = next(name for name in volume if name != "name")
    if source == "csi":
        driver = (volume["csi"] or {}).get("driver", "")
        return (
            "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: "
            f"driver name {driver} not found in the list of registered CSI drivers"
        )
    return f"no volume plugin matched: this node cannot mount {source} volumes; mount it on the machine and use a hostPath or a claim"
