"""Finds what runs a container's image, and says like a kubelet why it cannot be had: a name that is none, a pull that fails.

Making an environment takes the place of a pull: the container waits in ContainerCreating, and its message says how far it is.
"""

from __future__ import annotations

import time
from typing import NoReturn

from trainwright.api.objects import Obj
from trainwright.controlplane.environments import EnvironmentDefinition, Failed, Preparations, Preparing
from trainwright.controlplane.node.cannot_start import CannotStart
from trainwright.controlplane.node.images import ImageCatalogue, ImageEnvironment, image_name_error
from trainwright.controlplane.node.images.absent import AbsentImage, PullFailure, back_off, failed_pull
from trainwright.controlplane.node.lifecycle import events
from trainwright.controlplane.node.lifecycle.container_state import ContainerState
from trainwright.controlplane.node.lifecycle.events import Record

_LOOK_SECONDS = 0.3
"""Between looks at an environment that is being prepared."""


class ContainerImage:
    """The image of one container."""

    def __init__(self, spec: Obj, catalogue: ImageCatalogue, preparations: Preparations):
        self._image, self._policy = str(spec.get("image") or ""), spec.get("imagePullPolicy")
        self._catalogue, self._preparations = catalogue, preparations
        self._absent = AbsentImage(self._image, "images.yaml says that it is absent")
        self._preparing_since: float | None = None
        self._failures = 0
        """Of the environment, that were told."""

    def find(self, state: ContainerState, record: Record) -> ImageEnvironment | None:
        """Return what runs the image here, or None for an unknown one, which runs in the environment of the node.

        Raises CannotStart, and ConfigError for an invalid file of settings.
        """
        if problem := image_name_error(self._image):
            record(events.about(state, "InspectFailed", problem, warning=True))
            record(events.about(state, "Failed", "Error: InvalidImageName", warning=True))
            raise CannotStart("InvalidImageName", problem)
        found = self._catalogue.find(self._image)
        if self._policy == "Never" and (found is None or found.absent or not self._is_prepared(found)):
            message = f'Container image "{self._image}" is not present with pull policy of Never'
            record(events.about(state, "ErrImageNeverPull", message, warning=True))
            record(events.about(state, "Failed", "Error: ErrImageNeverPull", warning=True))
            raise CannotStart("ErrImageNeverPull", message)
        if found is not None and found.absent:
            _raise(self._absent.pull(time.monotonic()), state, record)
        if found is not None and found.definition is not None:
            self._prepare(found.definition, state, record)
        else:
            record(events.pulled(state, self._image, is_known=found is not None))
        return found

    def _prepare(self, definition: EnvironmentDefinition, state: ContainerState, record: Record) -> None:
        """Return once the environment is ready. Raises CannotStart before."""
        found = self._preparations.look(definition)
        if isinstance(found, Preparing):
            if self._preparing_since is None:
                self._preparing_since = time.monotonic()
                record(events.about(state, "Pulling", f'Pulling image "{self._image}": {found.message}'))
            raise CannotStart("ContainerCreating", found.message, retry_seconds=_LOOK_SECONDS)
        if isinstance(found, Failed):
            self._preparing_since = None
            self._tell_failure(found, state, record)
        if self._preparing_since is None:
            record(events.pulled(state, self._image, is_known=True))
        else:
            record(events.environment_made(state, self._image, definition.name, time.monotonic() - self._preparing_since))
            self._preparing_since = None

    def _is_prepared(self, found: ImageEnvironment) -> bool:
        return found.definition is None or self._preparations.is_ready(found.definition)

    def _tell_failure(self, failed: Failed, state: ContainerState, record: Record) -> NoReturn:
        """Say that an environment could not be prepared: first as a pull that failed, then as a pause until the next attempt."""
        if failed.failures != self._failures:
            self._failures = failed.failures
            _raise(failed_pull(self._image, failed.message), state, record, _LOOK_SECONDS)
        pause = max(failed.retry_at - time.monotonic(), _LOOK_SECONDS)
        _raise(back_off(self._image, failed.message), state, record, pause)


def _raise(failure: PullFailure, state: ContainerState, record: Record, retry_seconds: float | None = None) -> NoReturn:
    for reason, message in failure.events:
        record(events.about(state, reason, message, warning=reason == "Failed"))
    record(events.about(state, "Failed", f"Error: {failure.reason}", warning=True))
    raise CannotStart(failure.reason, failure.message, retry_seconds=retry_seconds)
