"""The words of a kubelet's events about a pod and its containers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainwright.controlplane.node.lifecycle.container_state import ContainerState, field_path

SOURCE = "kubelet"


@dataclass(frozen=True)
class PodEvent:
    """An event about a pod, or about the container at `path` in it."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str
    path: str = ""


Record = Callable[[PodEvent], None]
"""Takes the events about one pod."""


def about(state: ContainerState, reason: str, message: str, *, warning: bool = False) -> PodEvent:
    """Return an event about a container."""
    return PodEvent("Warning" if warning else "Normal", reason, message, field_path(state))


def backing_off(state: ContainerState, where: str) -> PodEvent:
    """A container waits until it is started again. `where` is `name_namespace(uid)` of its pod."""
    return about(state, "BackOff", f"Back-off restarting failed container {state.name} in pod {where}", warning=True)


def pulled(state: ContainerState, image: str, *, is_known: bool) -> PodEvent:
    """The image is there; or it is unknown here, and the container runs without it."""
    if is_known:
        return about(state, "Pulled", f'Container image "{image}" already present on machine and can be accessed by the pod')
    return about(
        state, "Pulled", f'Container image "{image}" is not known to this node: the container runs in the environment of the node'
    )


def environment_made(state: ContainerState, image: str, environment: str, seconds: float) -> PodEvent:
    """The environment that runs an image has been prepared."""
    text = f'Successfully pulled image "{image}" in {seconds:.1f}s: the environment {environment} was prepared'
    return about(state, "Pulled", text)


def probe_failed(state: ContainerState, kind: str, output: str, *, is_error: bool) -> PodEvent:
    """A probe failed (`output` is what it printed), or could not be made."""
    what = "probe errored and resulted in unknown state" if is_error else "probe failed"
    return about(state, "Unhealthy", f"{kind.capitalize()} {what}: {output}", warning=True)


def probe_warning(state: ContainerState, kind: str, output: str) -> PodEvent:
    """A probe succeeded, but not as it was meant: it was redirected to another host."""
    return about(state, "ProbeWarning", f"{kind.capitalize()} probe warning: {output}", warning=True)


def proxy_left_out(names: list[str]) -> PodEvent:
    """Variables of the node that name a proxy with its credentials are not those of the pod."""
    message = f"{', '.join(names)} of the node has credentials and is not set here: set it in the pod, from a Secret"
    return PodEvent("Normal", "ProxyLeftOut", message)


def volume_failed(volume: str, message: str) -> PodEvent:
    """A volume could not be made; the pod waits for it."""
    return PodEvent("Warning", "FailedMount", f'MountVolume.SetUp failed for volume "{volume}" : {message}')
