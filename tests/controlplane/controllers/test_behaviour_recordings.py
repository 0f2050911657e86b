"""Recorded scenarios: step by step, the embedded control plane shows what the real controllers showed. `make goldens` runs all."""

from __future__ import annotations

import json

import pytest
from behaviour_recordings import differences
from recording_archives import recordings_of

pytestmark = pytest.mark.medium

SAMPLE = [
    "job-indexed",
    "job-backoff-shared-by-indexes",
    "job-foreign-pod-adoption",
    "job-perindex-limit-one",
    "job-pfp-rule-order",
    "job-replacement-failed",
    "job-scale-parallelism-down",
    "job-success-slow-sibling",
    "job-suspend-keeps-failures",
    "job-ttl-zero",
    "jobset-delete-recreate-same-name",
    "jobset-depends-chain",
    "jobset-fail-rule-order-beats-time",
    "jobset-exclusive-followers-wait",
    "jobset-labels-priority",
    "jobset-managedby-default",
    "jobset-network-off",
    "jobset-restart-blocking-slow-pod",
    "jobset-startup-inorder-restart",
    "jobset-success-all-target",
    "jobset-suspend-second-admission",
    "jobset-ttl-zero-complete",
    "jobset-volumes-delete",
    "trainjob-deadline-resumed",
    "trainjob-initializers",
    "trainjob-complete",
    "trainjob-name-taken-jobset",
    "trainjob-suspend-create-resume",
]


def test_the_controllers_behave_as_recorded() -> None:
    recordings = recordings_of("behaviour")
    _expect_none(differences(recordings, SAMPLE))


def _expect_none(found: dict[str, list[str]]) -> None:
    wrong = {name: lines for name, lines in found.items() if lines}
    assert not wrong, json.dumps(wrong, indent=1)[:6000]
