"""Finds what runs a container's image, or reports like a kubelet why it is missing: an invalid name, or a pull that fails.

Making an environment takes the place of a pull: the container waits in ContainerCreating, and its message shows the progress. A pull
that fails is retried with growing pauses. Source: `EnsureImageExists` of the kubelet.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import NoReturn

from trainwright.api.objects import Obj
from trainwright.backoff import Backoff
from trainwright.controlplane.environments import EnvironmentDefinition, Failed, Preparations, Preparing
from trainwright.controlplane.node.images import ImageCatalogue, ImageEnvironment, image_name_error
from trainwright.controlplane.node.lifecycle import events
from trainwright.controlplane.node.lifecycle.container_state import ContainerState
from trainwright.controlplane.node.lifecycle.events import Record

_LOOK_SECONDS = 0.3
"""Between looks at an environment that is being prepared."""
PULL_FAILED, PULL_BACK_OFF = "ErrImagePull", "ImagePullBackOff"
_BACKOFF = Backoff(10.0, 300.0)


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
        if problem := image_name_error(self._image):  # no registry could have it: a kubelet does not try
            record(events.about(state, "InspectFailed", problem, warning=True))
            record(events.about(state, "Failed", "Error: InvalidImageName", warning=True))
            raise CannotStart("InvalidImageName", problem)
        found = self._catalogue.find(self._image)
        if self._policy == "Never" and (
            found is None or found.absent or (found.definition is not None and not self._preparations.is_ready(found.definition))
        ):
            message = f'Container image "{self._image}" is not present with pull policy of Never'
            record(events.about(state, "ErrImageNeverPull", message, warning=True))
            record(events.about(state, "Failed", "Error: ErrImageNeverPull", warning=True))
            raise CannotStart("ErrImageNeverPull", message)
        if found is not None and found.absent:  # chosen in images.yaml, to see what jobs do then
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
            self._preparing_since = None  # the next attempt is another "pull", with its own time
            if found.failures != self._failures:  # first told as a pull that failed, then as a pause until the next attempt
                self._failures = found.failures
                _raise(failed_pull(self._image, found.message), state, record, _LOOK_SECONDS)
            pause = max(found.retry_at - time.monotonic(), _LOOK_SECONDS)
            _raise(back_off(self._image, found.message), state, record, pause)
        if self._preparing_since is None:  # it was ready before this container came
            record(events.pulled(state, self._image, is_known=True))
        else:
            record(events.environment_made(state, self._image, definition.name, time.monotonic() - self._preparing_since))
            self._preparing_since = None


def _raise(failure: PullFailure, state: ContainerState, record: Record, retry_seconds: float | None = None) -> NoReturn:
    for reason, message in failure.events:
        record(events.about(state, reason, message, warning=reason == "Failed"))
    record(events.about(state, "Failed", f"Error: {failure.reason}", warning=True))
    raise CannotStart(failure.reason, failure.message, retry_seconds=retry_seconds)


class CannotStart(Exception):
    """A container cannot be started for now. `reason` is that of its waiting state, the text its message.

    `retry_seconds` says when to try again; None leaves that to the growing pauses after failures.
    """

    def __init__(self, reason: str, message: str, *, retry_seconds: float | None = None):
        super().__init__(message)
        self.reason, self.retry_seconds = reason, retry_seconds


@dataclass(frozen=True)
class PullFailure:
    """`reason` and `message` are those of the container's waiting state; `events` are pairs of a reason and a message."""

    reason: str
    message: str
    events: tuple[tuple[str, str], ...]


@dataclass
class AbsentImage:
    """The attempts to pull one image for one container. `why` is the message of each failure."""

    image: str
    why: str
    _failed_at: float | None = None
    _failures: int = 0

    def pull(self, now: float) -> PullFailure:
        """Try to pull it, unless the last attempt was just now. `now` is in seconds of a monotonic clock."""
        if self._failed_at is not None and now < self._failed_at + _BACKOFF.seconds(self._failures):
            return back_off(self.image, self.why)
        self._failed_at = now
        self._failures += 1
        failure = failed_pull(self.image, self.why)
        return replace(failure, events=(("Pulling", f'Pulling image "{self.image}"'), *failure.events))


def failed_pull(image: str, why: str) -> PullFailure:
    """An attempt to pull an image has failed."""
    return PullFailure(PULL_FAILED, why, (("Failed", f'Failed to pull image "{image}": {why}'),))


def back_off(image: str, why: str) -> PullFailure:
    """An attempt has failed, and the next one is waited for."""
    waits = f'Back-off pulling image "{image}"'
    return PullFailure(PULL_BACK_OFF, f"{waits}: {PULL_FAILED}: {why}", (("BackOff", waits),))
