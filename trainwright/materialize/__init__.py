"""Converts a TrainJob and its runtime to Kubernetes objects: a pure function, the only place with Trainer's rules."""

from trainwright.materialize.assembly import materialize, policy_problems
from trainwright.materialize.keys import Keys, SshKeyPair
from trainwright.materialize.random_keys import RandomKeys
from trainwright.materialize.settings import ProgressReports, Settings
from trainwright.materialize.snapshot import build_snapshot, load_snapshot, snapshot_name
from trainwright.materialize.updates import objects_to_apply, update_problems

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
