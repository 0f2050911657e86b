"""The names of pods, and the texts by which a container knows names: /etc/hosts and /etc/resolv.conf. Pure.

A pod has the host name and domain that a kubelet gives it. Its hosts file has what a kubelet writes, and the names that a cluster's
DNS would answer. Names and addresses are those of other pods too: what is not a host name or an address is left out, although
admission refuses it. No name server of the cluster exists: with `ClusterFirst`, pods use the machine's.
Sources: `GeneratePodHostNameAndDomain`, `GetNodenameForKernel`, `managedHostsFileContent` and `appendDNSConfig` of the kubelet, and
`parseDNSOptions` of containerd for the order of the lines.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.rules.metadata import is_subdomain
from trainwright.api.rules.pod_settings import is_address

CLUSTER_DOMAIN = "cluster.local"
_LONGEST_NAME = 63
_LONGEST_OF_KERNEL = 64
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


def host_name(pod: Obj, machine: Callable[[], str] = socket.gethostname) -> str:
    """Return what `hostname` prints in the pod. Raises ValueError for a name that the kernel does not take.

    That is `hostnameOverride`, else `hostname` or the pod's name, with its domain if `setHostnameAsFQDN` says so; on the host's
    network it is that of the `machine`.
    """
    spec = pod["spec"]
    if spec.get("hostNetwork"):
        return machine()
    short, domain = short_host_name(pod), pod_domain(pod)
    if not (spec.get("setHostnameAsFQDN") and domain):
        return short
    full = f"{short}.{domain}"
    if len(full) > _LONGEST_OF_KERNEL:
        raise ValueError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long "
            f"({_LONGEST_OF_KERNEL} characters is the max, {len(full)} characters requested)"
        )
    return full


def short_host_name(pod: Obj) -> str:
    """Return the host name without a domain, cut to what a DNS label takes."""
    if override := pod["spec"].get("hostnameOverride"):
        return str(override)
    name = str(pod["spec"].get("hostname") or name_of(pod))
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME].rstrip("-.")


def pod_domain(pod: Obj) -> str:
    """Return the domain of a pod with a subdomain, else an empty string."""
    spec = pod["spec"]
    if spec.get("hostnameOverride") or not spec.get("subdomain"):
        return ""
    return f"{spec['subdomain']}.{namespace_of(pod)}.svc.{CLUSTER_DOMAIN}"


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
    return text + _dns_lines(own[0], named, known)


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


def _dns_lines(namespace: str, pods: Iterable[PodName], services: Iterable[ServiceName]) -> str:
    """Return a line for each pod and Service, with the names by which a pod of the namespace may look it up."""
    lines = [
        _dns_line(address, f"{host}.{subdomain}", of, namespace)
        for of, host, subdomain, address in pods
        if host and subdomain and is_subdomain(f"{host}.{subdomain}")
    ]
    lines += [_dns_line(address, name, of, namespace) for of, name, address in services]
    return _DNS_HEADER + "".join(dict.fromkeys(lines)) if lines else ""


def _dns_line(address: str, name: str, of: str, namespace: str) -> str:
    """The short form is that of the first search domain of a pod, which is its own namespace."""
    full = f"{name}.{of}.svc"
    forms = [f"{full}.{CLUSTER_DOMAIN}", full, f"{name}.{of}"]
    return "\t".join([address, *forms, *([name] if of == namespace else [])]) + "\n"


def resolver_file(pod_spec: Obj, machine: str) -> str | None:
    """Return the file of a pod; None if it is that of the `machine`, whose text is given."""
    config, is_own = pod_spec.get("dnsConfig") or {}, pod_spec.get("dnsPolicy") == "None"
    if not config and not is_own:
        return None
    base = _Resolver() if is_own else _parse_resolver(machine)
    return _Resolver(
        _unique(*base.servers, *(config.get("nameservers") or [])),
        _unique(*base.searches, *(config.get("searches") or [])),
        _merged_options(base.options, config.get("options") or []),
    ).text()


@dataclass(frozen=True)
class _Resolver:
    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def text(self) -> str:
        lines = [f"search {' '.join(self.searches)}"] if self.searches else []
        lines += [f"nameserver {server}" for server in self.servers]
        lines += [f"options {' '.join(self.options)}"] if self.options else []
        return "".join(f"{line}\n" for line in lines)


def _parse_resolver(text: str) -> _Resolver:
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        if word == "nameserver":
            servers += rest[:1]
        elif word == "search":
            searches = rest
        elif word == "options":
            options += rest
    return _Resolver(tuple(servers), tuple(searches), tuple(options))


def _unique(*values: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _merged_options(options: tuple[str, ...], more: list[Obj]) -> tuple[str, ...]:
    """An option of the pod replaces one of the same name."""
    merged = {option.partition(":")[0]: option for option in options}
    for option in more:
        name, value = str(option.get("name") or ""), option.get("value")
        merged[name] = f"{name}:{value}" if value else name
    return tuple(merged.values())
