"""Fails without retries if an export cannot be used as it is; conflicts and errors of stores and registries may go away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainwright.operators.errors import NonRetryableError


@contextmanager
def reject_unusable_exports() -> Iterator[None]:
    """Raise NonRetryableError for a missing or invalid export or URI, missing or incomparable figures, and a missing client."""
    from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
    from trainwright.checkpoints.registries.registration import MissingExtra
    from trainwright.storage.errors import BadUri

    try:
        yield
    except BadUri as error:
        raise NonRetryableError(error) from None
    except CheckpointError as error:  # PromotionConflict and errors of registries are classes of their own
        if isinstance(error, NoCheckpoint | MissingExtra) or type(error) is CheckpointError:
            raise NonRetryableError(error) from None
        raise
