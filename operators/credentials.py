"""Credentials of a step that runs in the worker, from Airflow connections. They are set as environment variables while it runs.

The connection for an object store is like one for AWS (login, password, and `endpoint_url`, `region_name`,
`aws_session_token` in the extra). The connection for the hub has the token as its password.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_EXTRA = {
    "AWS_SESSION_TOKEN": "aws_session_token",
    "AWS_ENDPOINT_URL": "endpoint_url",
    "AWS_REGION": "region_name",
    "AWS_CA_BUNDLE": "verify",
}


@contextmanager
def credentials(store_conn_id: str | None, hub_conn_id: str | None) -> Iterator[None]:
    """Set the credentials of the connections in the environment, and restore it on exit. None sets nothing."""
    variables: dict[str, str] = {}
    if store_conn_id:
        variables |= _store_variables(_connection(store_conn_id))
    if hub_conn_id:
        variables["HF_TOKEN"] = str(_connection(hub_conn_id).password or "")
    variables = {name: value for name, value in variables.items() if value}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _connection(conn_id: str) -> Any:
    from airflow.sdk import BaseHook

    return BaseHook.get_connection(conn_id)


def _store_variables(connection: Any) -> dict[str, str]:
    extra = dict(connection.extra_dejson or {})
    texts = {name: extra.get(key) for name, key in _EXTRA.items()}
    return {
        "AWS_ACCESS_KEY_ID": str(connection.login or ""),
        "AWS_SECRET_ACCESS_KEY": str(connection.password or ""),
        **{name: value for name, value in texts.items() if isinstance(value, str)},
    }
