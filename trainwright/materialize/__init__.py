"""From a TrainJob and its runtime to Kubernetes objects: a pure function, the one place where Trainer's rules are applied."""

from trainwright.materialize.assembly import materialize, policy_problems
from trainwright.materialize.fresh_keys import FreshKeys
from trainwright.materialize.keys import Keys, SshKeyPair
from trainwright.materialize.settings import ProgressReports, Settings
from trainwright.materialize.snapshot import runtime_in, runtime_snapshot, snapshot_name
from trainwright.materialize.updates import due, update_problems

__all__ = [
    "FreshKeys",
    "Keys",
    "ProgressReports",
    "Settings",
    "SshKeyPair",
    "due",
    "materialize",
    "policy_problems",
    "runtime_in",
    "runtime_snapshot",
    "snapshot_name",
    "update_problems",
]
