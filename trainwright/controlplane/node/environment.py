"""A container's environment: the pod's variables, resolved and expanded, added to a small base without the node's credentials.

Variables may come from a file that another container of the pod has written (`fileKeyRef`). Its syntax is a part of the shell's:
`NAME='value'`, values over several lines, comments. Source: pkg/kubelet/util/env of Kubernetes.
Services are found by the variables of Kubernetes, and by those of Docker's links. Sources: pkg/kubelet/envvars and
`getServiceEnvVarMap` of Kubernetes.
"""

from __future__ import annotations

import os
import pwd
import re
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from trainwright.api.kinds import CONFIG_MAP, SECRET, SERVICE, Kind
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.quantities import parse_quantity
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.container import POD_MARK
from trainwright.controlplane.node.downward import NODE_ADDRESS, field_text, resource_text
from trainwright.controlplane.node.expansion import Room, expand_references
from trainwright.controlplane.node.images import ImageEnvironment
from trainwright.controlplane.node.network.host_names import host_name
from trainwright.controlplane.node.volumes.maker import MadeVolume
from trainwright.controlplane.node.volumes.mounts import SubPathEscape, read_in_volume
from trainwright.controlplane.node.volumes.references import ConfigError, allocatable_of, get_or_none, not_found, text_data

_MACHINE = (
    r"LANG|LC_\w+|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE|HF_ENDPOINT|TRANSFORMERS_OFFLINE"
    r"|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy|LD_LIBRARY_PATH|CUDA_HOME"
)
"""What is so of the machine and its network for all programs on it, in a container or not."""
_PROXY = re.compile(r"(HTTPS?|ALL)_PROXY|(https?|all)_proxy")
_INHERITED_ISOLATED = re.compile(rf"^({_MACHINE})$")
_INHERITED = re.compile(rf"^({_MACHINE}|USER|LOGNAME|TZ|SHELL)$")
_IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENV_FILE_BYTES = 64 * 1024
_IGNORED_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_NAME_PART = re.compile(r"[ \t]*(?P<name>[^\n=]*)(?P<equals>=?)")
_EMPTY_VALUE = re.compile(r"[ \t][^\n]*(?:\n|\Z)")
"""Like in a shell: with a space after `=` the value is empty."""
_QUOTED_VALUE = re.compile(r"'(?P<value>[^']*)'(?P<rest>[ \t]*(?:#[^\n]*)?(?:\n|\Z))?")
_HEADLESS = "None"
_KUBERNETES = ("kubernetes", 443)
"""The Service of the API server and the port in the names of its variables, which programs look for."""


def base_environment(
    pod: Obj,
    container: Obj,
    temporary: Path,
    user_home: Path,
    *,
    threads: int,
    port: int | None = None,
    isolated: bool = False,
    uid: int = 0,
    image: ImageEnvironment | None = None,
) -> dict[str, str]:
    """Return the variables that a container's processes have before those of the pod: what a runtime and an image would set.

    Credentials in the node's environment are not inherited. `isolated` processes have a root file system of their own, a PATH and,
    for their numeric `uid`, a HOME as in an image. Others share the files of this machine: they have the node's PATH, and HOME is the
    pod's own empty folder `user_home`, so that no library finds the credentials that the node's user has stored (`~/.aws`, the hub's
    token). First in PATH are the programs of the `image`'s environment, else those of this installation. `threads` is the share of
    the machine of a container that asks for no CPU; `port` that of the rendezvous, if the pod has one.
    Raises ConfigError for a host name that is too long.
    """
    programs = image.environment / "bin" if image is not None and image.environment is not None else None
    env = machine_variables(programs, isolated=isolated)
    env |= {"HOME": _home_of(uid)} if isolated else {"HOME": str(user_home), "TMPDIR": str(temporary)}
    env |= {"OMP_NUM_THREADS": str(thread_count(container, threads))}
    env |= _loopback(port, pod if isolated else None)
    if image is not None:
        env |= image.env
    try:
        return env | {"HOSTNAME": host_name(pod), POD_MARK: uid_of(pod)}
    except ValueError as error:  # a name and subdomain that are too long together
        raise ConfigError(str(error)) from error


def _home_of(user: int) -> str:
    if user == 0:
        return "/root"
    try:
        return pwd.getpwuid(user).pw_dir or "/"
    except KeyError:  # the user is not one of this machine
        return "/"


def _loopback(port: int | None, isolated: Obj | None) -> dict[str, str]:
    """Return variables by which the frameworks listen on the loopback interface only, as all pods are on this machine.

    Gloo, NCCL and TensorPipe (torch's RPC) are told the interface, JAX the address to which the name of an `isolated` pod leads, else
    127.0.0.1. torch's own store has no such setting.
    """
    interface = "lo0" if sys.platform == "darwin" else "lo"
    found = {f"{name}_SOCKET_IFNAME": interface for name in ("GLOO", "NCCL", "TP")}
    if port is None:
        return found  # no port to bind to the loopback interface
    address = (isolated or {}).get("status", {}).get("podIP") or "127.0.0.1"
    # The second is for frameworks that take the port from no variable: see the package `shims`.
    return {**found, "JAX_COORDINATOR_BIND_ADDRESS": f"{address}:{port}", "TRAINWRIGHT_RENDEZVOUS_PORT": str(port)}


def machine_variables(programs: Path | None = None, *, isolated: bool) -> dict[str, str]:
    """Return the variables that all containers have: those of the machine, and a PATH with the folder `programs` first."""
    pattern = _INHERITED_ISOLATED if isolated else _INHERITED
    left_out = proxies_with_credentials()
    env = {name: value for name, value in os.environ.items() if pattern.match(name) and name not in left_out}
    if isolated:
        # An image would not have settings of certificates that name what is used anyway.
        defaults = ssl.get_default_verify_paths()
        for name, default in (("SSL_CERT_FILE", defaults.openssl_cafile), ("SSL_CERT_DIR", defaults.openssl_capath)):
            if name in env and os.path.realpath(env[name]) == os.path.realpath(default):
                del env[name]
    programs = programs or Path(sys.executable).parent
    env["PATH"] = os.pathsep.join([str(programs), _IMAGE_PATH if isolated else os.environ.get("PATH", os.defpath)])
    return env | {"PYTHONUNBUFFERED": "1"}


def thread_count(container: Obj, share: int) -> int:
    """Return the number of threads that a container's processes should have, at least 1 and at most the machine's cores.

    That is its CPU limit, else its CPU request, rounded up, else `share`, its part of the machine.
    """
    resources = container.get("resources") or {}
    amount = next((value for group in ("limits", "requests") if (value := (resources.get(group) or {}).get("cpu"))), None)
    wanted = share if amount is None else parse_quantity(amount).ceiling()
    return max(min(wanted, os.cpu_count() or 1), 1)


def proxies_with_credentials() -> list[str]:
    """Return the variables of the node that name a proxy with a user or password: they are the operator's, and no pod gets them."""
    return sorted(name for name, value in os.environ.items() if _PROXY.fullmatch(name) and "@" in value)


@dataclass(frozen=True)
class VariableResolver:
    """Resolves a container's `env` and `envFrom` as a kubelet does.

    `pod` has its addresses in its status. `api_address` is where containers reach the API server; None leaves its variables out.
    `volumes` are those that were made for the pod, for variables from files. `unassigned` is the address of Services without one.
    """

    cluster: Cluster
    pod: Obj
    api_address: tuple[str, int] | None = None
    volumes: Mapping[str, MadeVolume] = field(default_factory=dict)
    unassigned: str = NODE_ADDRESS

    def own_variables(self, container: Obj, rewrite: Callable[[str], str] = str) -> dict[str, str]:
        """Return the variables that the cluster gives to a container: to these, and no others, `$(NAME)` refers in its commands.

        `rewrite` is applied to every value.
        In the order of their precedence, the last one wins: Services, `envFrom`, `env`.
        Raises ConfigError, in the kubelet's words, for a missing object, key or field, and ArgumentsTooLong.
        """
        found: dict[str, str] = {}
        namespace = namespace_of(self.pod)
        if self.pod["spec"].get("enableServiceLinks"):
            found |= service_variables(self.cluster.list(SERVICE, namespace).items, namespace, self.unassigned)
        if self.api_address is not None:
            found |= api_server_variables(*self.api_address)
        resolved = {name: rewrite(value) for name, value in found.items()}
        room = Room()
        for name, value in chain(self._imported(container), self._listed(container, resolved)):
            if "\0" in value:
                raise ConfigError(f"the value of the variable {name} contains a NUL byte, which no process can be given")
            resolved[name] = rewrite(value)
            room.take(f"{name}={resolved[name]}", f"the variable {name}")
        return resolved

    def _imported(self, container: Obj) -> Iterator[tuple[str, str]]:
        for source in container.get("envFrom") or []:
            prefix = source.get("prefix") or ""
            for kind, reference in ((CONFIG_MAP, "configMapRef"), (SECRET, "secretRef")):
                if reference in source:
                    for key, content in (self._data(kind, source[reference]) or {}).items():
                        yield prefix + key, _text(content)

    def _listed(self, container: Obj, earlier: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the variables of `env`; `earlier` has those before the next one when it is asked for."""
        for entry in container.get("env") or []:
            if (found := self._value(entry, container, earlier)) is not None:
                yield entry["name"], found

    def _value(self, entry: Obj, container: Obj, earlier: Mapping[str, str]) -> str | None:
        """Return the value of an entry of `env`, or None for an optional one that there is not."""
        source = entry.get("valueFrom")
        if entry.get("value") or not source:
            return expand_references(str(entry.get("value") or ""), earlier, f"the variable {entry['name']}")
        for kind, reference in ((CONFIG_MAP, "configMapKeyRef"), (SECRET, "secretKeyRef")):
            if reference in source:
                return self._key(kind, source[reference])  # a key is taken as it is: references in it are not expanded
        try:
            if "fieldRef" in source:
                return field_text(self.pod, source["fieldRef"]["fieldPath"])
            if "resourceFieldRef" in source:
                return resource_text(
                    self.pod, source["resourceFieldRef"], lambda: allocatable_of(self.cluster, self.pod), container
                )
        except ValueError as error:  # a field or resource that the downward API does not have
            raise ConfigError(str(error)) from error
        if "fileKeyRef" in source:
            return value_in_file(source["fileKeyRef"], self.volumes)
        raise ConfigError(f"variable {entry['name']}: the source {', '.join(source)} is not supported")

    def _key(self, kind: Kind, reference: Obj) -> str | None:
        data = self._data(kind, reference)
        if data is None:
            return None  # optional, and the object is not there
        key = reference["key"]
        if key in data:
            return _text(data[key])
        if reference.get("optional"):
            return None  # the container starts without the variable
        raise ConfigError(f"couldn't find key {key} in {kind.kind} {namespace_of(self.pod)}/{reference.get('name', '')}")

    def _data(self, kind: Kind, reference: Obj) -> dict[str, bytes] | None:
        """Return the contents of a ConfigMap or Secret, or None for an optional one that there is not."""
        name = reference.get("name") or ""
        obj = get_or_none(self.cluster, kind, name, namespace_of(self.pod))
        if obj is not None:
            return text_data(obj)
        if reference.get("optional"):
            return None  # the container starts without its variables
        raise ConfigError(not_found(kind, name))


def _text(content: bytes) -> str:
    """Return any bytes as the text that becomes the same bytes again in a process's environment."""
    return content.decode("utf-8", "surrogateescape")


def value_in_file(reference: Obj, volumes: Mapping[str, MadeVolume]) -> str | None:
    """Return the value of a fileKeyRef, or None for an optional one that there is not.

    `volumes` are those of the pod. Raises ConfigError for a missing file or key, or a file in another syntax.
    """
    name, path, key = reference["volumeName"], reference["path"], reference["key"]
    volume = volumes.get(name)
    if volume is None:
        raise ConfigError(f'cannot find the volume "{name}" for environment variable key "{key}"')
    try:
        content = read_in_volume(volume.path, path, _ENV_FILE_BYTES + 1)
    except FileNotFoundError:  # the container that writes it has not, or names another file
        if reference.get("optional"):
            return None
        raise ConfigError(f'environment variable file "{path}" not found in volume "{name}"') from None
    except (OSError, SubPathEscape) as error:  # not a file, or a link out of the volume
        raise ConfigError(f'environment variable file "{path}" of volume "{name}" cannot be read') from error
    if len(content) > _ENV_FILE_BYTES:
        raise ConfigError(f'environment variable file "{path}" of volume "{name}" has more than {_ENV_FILE_BYTES} bytes')
    for found, value in parse_env_file(content.decode("utf-8", "surrogateescape")):
        if found == key:
            return value
    if reference.get("optional"):
        return None
    raise ConfigError(f'environment variable key "{key}" not found in file "{path}" of volume "{name}"')


def parse_env_file(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values in order. Raises ConfigError, with the number of the line, where the syntax is another."""
    text = text.replace("\r\n", "\n").removesuffix("\r")
    position = 0
    while position < len(text):
        if ignored := _IGNORED_LINE.match(text, position):
            position = ignored.end()
            continue  # an empty line or a comment
        name = _name(text, position)
        if empty := _EMPTY_VALUE.match(text, name.end()):
            yield name["name"], ""
            position = empty.end()
            continue
        quoted = _quoted(text, name.end())
        yield name["name"], quoted["value"]
        position = quoted.end()


def _name(text: str, position: int) -> re.Match[str]:
    found = _NAME_PART.match(text, position)
    if found is None or not found["equals"]:
        raise _invalid(text, position, "missing '='")
    if not found["name"]:
        raise _invalid(text, position, "empty variable name")
    if found["name"] != found["name"].rstrip(" \t"):
        raise _invalid(text, position, "whitespace before '=' is not allowed")
    return found


def _invalid(text: str, position: int, why: str, where: str = "at") -> ConfigError:
    line = text.count("\n", 0, position) + 1
    return ConfigError(f"invalid environment variable format {where} line {line}: {why}")


def _quoted(text: str, position: int) -> re.Match[str]:
    if text[position : position + 1] != "'":
        raise _invalid(text, position, "value must be enclosed in single quotes")
    found = _QUOTED_VALUE.match(text, position)
    if found is None:
        raise _invalid(text, position, "unclosed single quote", "starting at")
    if found["rest"] is None:
        raise _invalid(text, found.end(), "unexpected content after closing quote")
    return found


def service_variables(services: Iterable[Obj], namespace: str, unassigned: str) -> dict[str, str]:
    """Return the variables of the Services of a namespace, without those that have no address of their own.

    `unassigned` is the address of Services to which no clusterIP was given: this cluster has no network that routes one.
    """
    variables: dict[str, str] = {}
    for service in sorted(services, key=name_of):
        spec = service.get("spec") or {}
        address = spec.get("clusterIP") or unassigned
        if (
            namespace_of(service) != namespace
            or address == _HEADLESS
            or spec.get("type") == "ExternalName"
            or not spec.get("ports")
        ):
            continue  # of another namespace, or not at an address and ports
        ports = [
            (int(port["port"]), int(port["port"]), str(port.get("protocol") or "TCP"), str(port.get("name") or ""))
            for port in spec["ports"]
        ]
        variables |= _link_variables(name_of(service), address, ports)
    return variables


def _link_variables(service: str, host: str, ports: list[tuple[int, int, str, str]]) -> dict[str, str]:
    """`ports` are `(number in the variable's name, number, protocol, name)`."""
    prefix = _variable_name(service)
    variables = {f"{prefix}_SERVICE_HOST": host, f"{prefix}_SERVICE_PORT": str(ports[0][1])}
    shown = f"[{host}]" if ":" in host else host
    for index, (shown_port, port, protocol, name) in enumerate(ports):
        if name:
            variables[f"{prefix}_SERVICE_PORT_{_variable_name(name)}"] = str(port)
        url = f"{protocol.lower()}://{shown}:{port}"
        if index == 0:
            variables[f"{prefix}_PORT"] = url
        link = f"{prefix}_PORT_{shown_port}_{protocol.upper()}"
        variables |= {link: url, f"{link}_PROTO": protocol.lower(), f"{link}_PORT": str(port), f"{link}_ADDR": host}
    return variables


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()


def api_server_variables(host: str, port: int) -> dict[str, str]:
    """Return the variables of the Service `kubernetes`, with the address at which the API server really listens."""
    name, named_port = _KUBERNETES
    return _link_variables(name, host, [(named_port, port, "TCP", "https")])
