"""Converts a TrainJob and its runtime to Kubernetes objects: a pure function, the only place with Trainer's rules."""

from trainwright.materialize.assembly import materialize, objects_to_apply, policy_problems, update_problems
from trainwright.materialize.keys import Keys, RandomKeys, SshKeyPair
from trainwright.materialize.runtime_template import build_snapshot, load_snapshot, snapshot_name
from trainwright.materialize.settings import ProgressReports, Settings

__all__ = [
    "Keys",
    "ProgressReports",
    "RandomKeys",
    "Settings",
    "SshKeyPair",
    "build_snapshot",
    "load_snapshot",
    "materialize",
    "objects_to_apply",
    "policy_problems",
    "snapshot_name",
    "update_problems",
]
