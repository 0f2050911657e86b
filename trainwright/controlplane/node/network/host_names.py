"""The host name of a pod and its name in the cluster's DNS, as a kubelet makes them. Pure.

Source: `GeneratePodHostNameAndDomain` and `GetNodenameForKernel` of Kubernetes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from trainwright.api.objects import Obj, name_of, namespace_of

CLUSTER_DOMAIN = "cluster.local"
_LONGEST = 63
_LONGEST_OF_KERNEL = 64


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
    return name if len(name) <= _LONGEST else name[:_LONGEST].rstrip("-.")


def pod_domain(pod: Obj) -> str:
    """Return the domain of a pod with a subdomain, else an empty string."""
    spec = pod["spec"]
    if spec.get("hostnameOverride") or not spec.get("subdomain"):
        return ""
    return f"{spec['subdomain']}.{namespace_of(pod)}.svc.{CLUSTER_DOMAIN}"
