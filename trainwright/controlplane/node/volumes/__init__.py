"""The volumes of a pod: what each kind is on this machine, how its files change, and how a container gets at them.

Source of the behaviour: the volume plugins of the kubelet (pkg/volume of Kubernetes).
"""

from trainwright.controlplane.node.volumes.errors import ConfigError, VolumeError
from trainwright.controlplane.node.volumes.maker import MadeVolume, VolumeMaker
from trainwright.controlplane.node.volumes.object_data import decode_data
from trainwright.controlplane.node.volumes.tokens import IssueToken

__all__ = ["ConfigError", "IssueToken", "MadeVolume", "VolumeError", "VolumeMaker", "decode_data"]
