"""The text of a pod's /etc/hosts: what a kubelet writes, and the names that a cluster's DNS would answer. Pure.

Names and addresses are those of other pods too: whatever is no host name or no address is left out, although admission refuses it.

Source of the first part: `managedHostsFileContent` in pkg/kubelet/kubelet_pods.go of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.api.objects import Obj, namespace_of
from trainwright.api.rules.metadata import is_subdomain
from trainwright.api.rules.pod_settings import is_address
from trainwright.controlplane.node.network.host_names import CLUSTER_DOMAIN, pod_domain, short_host_name

PodName = tuple[str, str, str, str]
"""Namespace, host name, subdomain and address of a pod."""
ServiceName = tuple[str, str, str]
"""Namespace, name and address of a Service; one for each address if it has several."""
_HEADER = "# Kubernetes-managed hosts file.\n"
_HOST_NETWORK_HEADER = "# Kubernetes-managed hosts file (host network).\n"
_LOCALHOST = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)
_ALIASES_HEADER = "\n# Entries added by HostAliases.\n"
_DNS_HEADER = "\n# Names of pods and Services, which a cluster resolves by DNS.\n"
_API_SERVER = ("default", "kubernetes")


def hosts_file(
    pod: Obj,
    address: str,
    pods: Iterable[PodName] = (),
    services: Iterable[ServiceName] = (),
    api_address: str | None = None,
    host_file: str = "",
) -> str:
    """Return the hosts file of a pod with this address.

    `pods` are those with a host name and a subdomain, this one included or not; `api_address` is that of the API server;
    `host_file` is the machine's own hosts file, which a pod on the host's network gets.
    """
    own = (namespace_of(pod), short_host_name(pod), str(pod["spec"].get("subdomain") or ""), address)
    is_on_host = pod["spec"].get("hostNetwork")
    text = _HOST_NETWORK_HEADER + host_file if is_on_host else _HEADER + _LOCALHOST + _own_line(pod, address)
    text += _aliases(pod["spec"].get("hostAliases") or [])
    named = [own, *pods] if own[1] and own[2] and not pod["spec"].get("hostnameOverride") else list(pods)
    known = [*services, *([(*_API_SERVER, api_address)] if api_address else [])]
    return text + _names(own[0], named, known)


def _own_line(pod: Obj, address: str) -> str:
    name, domain = short_host_name(pod), pod_domain(pod)
    if not is_subdomain(f"{name}.{domain}" if domain else name):
        return ""
    return f"{address}\t{name}.{domain}\t{name}\n" if domain else f"{address}\t{name}\n"


def _aliases(aliases: Iterable[Obj]) -> str:
    lines = [
        "\t".join([alias["ip"], *filter(is_subdomain, alias.get("hostnames") or [])]) + "\n"
        for alias in aliases
        if alias and is_address(str(alias.get("ip") or ""))
    ]
    return _ALIASES_HEADER + "".join(lines) if lines else ""


def _names(namespace: str, pods: Iterable[PodName], services: Iterable[ServiceName]) -> str:
    """Return a line for each pod and Service, with the names by which a pod of the namespace may look it up."""
    lines = [
        _line(address, f"{host}.{subdomain}", of, namespace)
        for of, host, subdomain, address in pods
        if host and subdomain and is_subdomain(f"{host}.{subdomain}")
    ]
    lines += [_line(address, name, of, namespace) for of, name, address in services]
    return _DNS_HEADER + "".join(dict.fromkeys(lines)) if lines else ""


def _line(address: str, name: str, of: str, namespace: str) -> str:
    """The short form is that of the first search domain of a pod, which is its own namespace."""
    full = f"{name}.{of}.svc"
    forms = [f"{full}.{CLUSTER_DOMAIN}", full, f"{name}.{of}"]
    return "\t".join([address, *forms, *([name] if of == namespace else [])]) + "\n"
