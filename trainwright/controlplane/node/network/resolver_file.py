"""The text of a pod's /etc/resolv.conf where its `dnsPolicy` or `dnsConfig` asks for another one than the machine's. Pure.

A name server of the cluster is not there: `ClusterFirst` is the machine's, and the hosts file has the names of the cluster.
Source: `appendDNSConfig` of the kubelet, and `parseDNSOptions` of containerd for the order of the lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.objects import Obj


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


def resolver_file(pod_spec: Obj, machine: str) -> str | None:
    """Return the file of a pod; None if it is that of the `machine`, whose text is given."""
    config, is_own = pod_spec.get("dnsConfig") or {}, pod_spec.get("dnsPolicy") == "None"
    if not config and not is_own:
        return None
    base = _Resolver() if is_own else _parse(machine)
    return _Resolver(
        _unique(*base.servers, *(config.get("nameservers") or [])),
        _unique(*base.searches, *(config.get("searches") or [])),
        _merged(base.options, config.get("options") or []),
    ).text()


def _parse(text: str) -> _Resolver:
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


def _merged(options: tuple[str, ...], more: list[Obj]) -> tuple[str, ...]:
    """An option of the pod replaces one of the same name."""
    merged = {option.partition(":")[0]: option for option in options}
    for option in more:
        name, value = str(option.get("name") or ""), option.get("value")
        merged[name] = f"{name}:{value}" if value else name
    return tuple(merged.values())


def _unique(*values: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
