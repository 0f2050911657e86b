"""Recorded scenarios: step by step, the embedded control plane shows what the real controllers showed. `make goldens` runs all."""

from __future__ import annotations

import json

import pytest
from behaviour_recordings import differences
from recording_archives import recordings_of

pytestmark = [pytest.mark.medium, pytest.mark.timeout(240)]

SAMPLE = """
job-backoff-failure-and-last-success job-backoff-one job-backoff-onfailure-one job-backoff-shared-by-indexes
job-foreign-pod-adoption job-indexed job-nonindexed-workqueue job-perindex-independent-delay job-perindex-limit-one
job-perindex-limit-zero job-perindex-max-failed job-pfp-container-name job-pfp-count job-pfp-failjob-notin
job-pfp-ignore-exit job-pfp-rule-order job-replacement-failed job-scale-parallelism-down
job-scale-parallelism-down-ready job-success-and-backoff job-success-count job-success-indexes-and-count
job-success-slow-sibling job-suspend-keeps-failures job-ttl-zero jobset-delete-recreate-same-name jobset-depends-chain
jobset-depends-ready jobset-exclusive-followers-wait jobset-exclusive-node-selector jobset-fail-empty-policy
jobset-fail-restart-then-fail jobset-fail-rule-failjobset jobset-fail-rule-ignore-max
jobset-fail-rule-message-and-reason jobset-fail-rule-order-beats-time jobset-fail-rule-reason-no-match
jobset-labels-priority jobset-managedby-default jobset-network-off jobset-restart-blocking-slow-pod
jobset-startup-inorder-not-ready jobset-startup-inorder-restart jobset-status-ready-fraction jobset-success-all-default
jobset-success-all-target jobset-success-any jobset-suspend-second-admission jobset-suspend-template-change-on-resume
jobset-ttl-zero-complete jobset-volumes-delete jobset-volumes-retain trainjob-complete trainjob-deadline-resumed
trainjob-initializers trainjob-mpi-objects trainjob-name-taken-jobset trainjob-runtime-changed
trainjob-suspend-create-resume
"""


def test_the_controllers_behave_as_recorded() -> None:
    found = differences(recordings_of("behaviour"), SAMPLE.split())
    wrong = {name: lines for name, lines in found.items() if lines}
    assert not wrong, json.dumps(wrong, indent=1)[:6000]
