"""Fails without retries for a connection that does not exist: Airflow would try the task again, and name no remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainwright.operators.values.airflow_api import AirflowFailException, AirflowNotFoundException


class ConnectionNotDefined(AirflowFailException):
    """The task names a connection that Airflow does not have. A retry cannot succeed."""


@contextmanager
def defined_connection(conn_id: str) -> Iterator[None]:
    """Read the connection in the block. Raises ConnectionNotDefined."""
    try:
        yield
    except AirflowNotFoundException:
        raise ConnectionNotDefined(
            f"the connection {conn_id!r} is not defined: create it (Admin, Connections; or `airflow connections add {conn_id}`), or "
            "correct conn_id, store_conn_id or hub_conn_id of the task"
        ) from None
