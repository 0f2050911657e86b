"""The volumes of a pod: what each kind is on this machine, how its files change, and how a container gets at them.

Source of the behaviour: the volume plugins of the kubelet (pkg/volume of Kubernetes).
"""

from trainwright.controlplane.node.volumes.maker import MadeVolume, VolumeMaker
from trainwright.controlplane.node.volumes.projections import IssueToken
from trainwright.controlplane.node.volumes.references import ConfigError, VolumeError, decode_data

__all__ = ["ConfigError", "IssueToken", "MadeVolume", "VolumeError", "VolumeMaker", "decode_data"]
