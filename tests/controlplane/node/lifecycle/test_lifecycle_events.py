"""The words of a kubelet's events."""

from __future__ import annotations

import pytest
from lifecycle_states import init, main, sidecar

from trainwright.controlplane.node.lifecycle import events
from trainwright.controlplane.node.lifecycle.events import PodEvent

IN_MAIN, IN_SIDECAR = "spec.containers{m}", "spec.initContainers{s}"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            events.about(init(), "Started", "Container started"),
            ("Normal", "Started", "Container started", "spec.initContainers{i}"),
        ),
        (events.about(main(), "Failed", "Error: x", warning=True), ("Warning", "Failed", "Error: x", IN_MAIN)),
        (
            events.backing_off(sidecar(), "p_n(u)"),
            ("Warning", "BackOff", "Back-off restarting failed container s in pod p_n(u)", IN_SIDECAR),
        ),
        (
            events.pulled(main(), "image:1", is_known=True),
            ("Normal", "Pulled", 'Container image "image:1" already present on machine and can be accessed by the pod', IN_MAIN),
        ),
        (
            events.probe_failed(main(), "readiness", "cat: no such file\n", is_error=False),
            ("Warning", "Unhealthy", "Readiness probe failed: cat: no such file\n", IN_MAIN),
        ),
        (
            events.probe_failed(main(), "startup", "rpc error", is_error=True),
            ("Warning", "Unhealthy", "Startup probe errored and resulted in unknown state: rpc error", IN_MAIN),
        ),
        (
            events.probe_warning(sidecar(), "liveness", "Probe terminated redirects, Response body: x"),
            ("Warning", "ProbeWarning", "Liveness probe warning: Probe terminated redirects, Response body: x", IN_SIDECAR),
        ),
        (
            events.volume_failed("v", 'configmap "c" not found'),
            ("Warning", "FailedMount", 'MountVolume.SetUp failed for volume "v" : configmap "c" not found', ""),
        ),
    ],
)
def test_words_of_events(event: PodEvent, expected: tuple[str, str, str, str]) -> None:
    assert (event.kind, event.reason, event.message, event.path) == expected


def test_an_image_that_is_not_known_here_is_no_lie() -> None:
    assert "not known to this node" in events.pulled(main(), "image:1", is_known=False).message
