"""A container's environment: the pod's variables, resolved and expanded, added to a small base without the node's credentials."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path

from trainwright.api.errors import NotFound
from trainwright.api.kinds import CONFIG_MAP, SECRET, Kind
from trainwright.api.objects import Obj, named, namespace_of, uid_of
from trainwright.api.quantities import parse_quantity
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.container import POD_MARK
from trainwright.controlplane.node.downward import field_text
from trainwright.controlplane.node.volumes import VolumeError, decode_data

_INHERITED = re.compile(
    r"^(USER|LOGNAME|LANG|LC_\w+|TZ|SHELL|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE"
    r"|HF_ENDPOINT|TRANSFORMERS_OFFLINE|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy|LD_LIBRARY_PATH|CUDA_HOME)$"
)
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def base_environment(
    pod: Obj, hostname: str, temporary: Path, user_home: Path, *, threads: int, port: int | None = None
) -> dict[str, str]:
    """Return the base environment of every process of a pod.

    The programs of this installation come first in PATH. Credentials in the node's environment are not inherited, and HOME is
    the pod's own empty folder, so that no library finds those that the node's user has stored (`~/.aws`, the hub's token).
    `threads` is the default for OpenMP, so that pods share the machine. `port` is that of the rendezvous, if the pod has one.
    """
    env = {name: value for name, value in os.environ.items() if _INHERITED.match(name)}
    programs = str(Path(sys.executable).parent)
    env["PATH"] = os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])
    env["HOSTNAME"] = hostname
    env["TMPDIR"] = str(temporary)
    env["HOME"] = str(user_home)
    env["PYTHONUNBUFFERED"] = "1"
    env["OMP_NUM_THREADS"] = str(max(threads, 1))
    env[POD_MARK] = uid_of(pod)
    return env | _loopback(port)


def _loopback(port: int | None) -> dict[str, str]:
    """Return variables by which the frameworks listen on the loopback interface only, as all pods are on this machine.

    Gloo, NCCL and TensorPipe (torch's RPC) are told the interface, JAX the address. torch's own store has no such setting.
    """
    interface = "lo0" if sys.platform == "darwin" else "lo"
    found = {f"{name}_SOCKET_IFNAME": interface for name in ("GLOO", "NCCL", "TP")}
    return found if port is None else {**found, "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}"}


@dataclass(frozen=True)
class VariableResolver:
    """Resolves a container's `env` and `envFrom`. Raises VolumeError for a missing object or key."""

    cluster: Cluster
    pod: Obj

    def variables(self, container: Obj, base: dict[str, str], rewrite: Callable[[str], str]) -> dict[str, str]:
        """Add the container's variables to `base`. `$(NAME)` refers to earlier variables; `rewrite` is applied to every value."""
        resolved = dict(base)
        for name, value in self._imported(container):
            resolved[name] = rewrite(value)
        for entry in container.get("env") or []:
            text = self._value(entry, container)
            if text is not None:
                resolved[entry["name"]] = rewrite(expand_references(text, resolved))
        return resolved

    def _imported(self, container: Obj) -> Iterator[tuple[str, str]]:
        for source in container.get("envFrom") or []:
            prefix = source.get("prefix") or ""
            for kind, field in ((CONFIG_MAP, "configMapRef"), (SECRET, "secretRef")):
                if field in source:
                    for key, content in self._keys(kind, source[field]).items():
                        yield prefix + key, content.decode()

    def _value(self, entry: Obj, container: Obj) -> str | None:
        source = entry.get("valueFrom")
        if not source:
            return str(entry.get("value") or "")
        if "fieldRef" in source:
            try:
                return field_text(self.pod, source["fieldRef"]["fieldPath"])
            except ValueError as error:
                raise VolumeError(f"variable {entry['name']}: {error}") from error
        if "resourceFieldRef" in source:
            return self._resource(source["resourceFieldRef"], container)
        for kind, field in ((CONFIG_MAP, "configMapKeyRef"), (SECRET, "secretKeyRef")):
            if field in source:
                keys = self._keys(kind, source[field])
                if source[field]["key"] in keys:
                    return keys[source[field]["key"]].decode()
                if source[field].get("optional"):
                    return None
                raise VolumeError(
                    f"variable {entry['name']}: {kind.kind} {source[field]['name']!r} has no key {source[field]['key']!r}"
                )
        raise VolumeError(f"variable {entry['name']}: the source {', '.join(source)} is not supported")

    def _keys(self, kind: Kind, reference: Obj) -> dict[str, bytes]:
        try:
            return decode_data(self.cluster.get(kind, reference["name"], namespace_of(self.pod)))
        except NotFound as error:
            if reference.get("optional"):
                return {}
            raise VolumeError(f"{kind.kind.lower()} {reference['name']!r} not found") from error

    def _resource(self, reference: Obj, container: Obj) -> str:
        group, _, resource = reference["resource"].partition(".")
        if reference.get("containerName"):
            container = named(self.pod["spec"].get("containers"), reference["containerName"]) or container
        amount = ((container.get("resources") or {}).get(group) or {}).get(resource, 0)
        divisor = parse_quantity(reference.get("divisor") or 1).value or 1
        return str(ceil(Fraction(parse_quantity(amount).value) / Fraction(divisor)))  # decimals divide to 28 digits only


def expand_references(text: str, variables: dict[str, str]) -> str:
    """Replace `$(NAME)` by a variable's value, like Kubernetes.

    `$$` is an escaped `$`; a reference ends at the next `)`; unknown names and all other text are kept.
    Source: third_party/forked/golang/expansion of Kubernetes.
    """

    def replace(match: re.Match[str]) -> str:
        return "$" if match[1] is None else variables.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)
