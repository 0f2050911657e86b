"""What a kubelet says of an image that cannot be pulled: it tries again and again, and waits between, longer each time. Pure.

Source: `EnsureImageExists` of the kubelet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwright.backoff import Backoff

PULL_FAILED, PULL_BACK_OFF = "ErrImagePull", "ImagePullBackOff"
_BACKOFF = Backoff(10.0, 300.0)


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
