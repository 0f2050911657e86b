"""The two ways in which what a pod refers to cannot be had: a volume cannot be mounted, or a container cannot be configured.

A kubelet tells them apart too: the first is an Event of the pod, the second also the waiting reason of one container.
"""

from __future__ import annotations


class VolumeError(Exception):
    """A volume cannot be made. The message is the kubelet's; `volume` is the name of the volume in the pod.

    The kubelet's event is `MountVolume.SetUp failed for volume "VOLUME" : MESSAGE`, with the reason FailedMount.
    """

    def __init__(self, message: str, volume: str = ""):
        super().__init__(message)
        self.volume = volume


class ConfigError(Exception):
    """A container cannot be configured: reason CreateContainerConfigError, and the kubelet's message."""
