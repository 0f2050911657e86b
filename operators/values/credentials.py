"""Credentials from Airflow connections: in the environment of a step in the worker, or as a Secret of a job on the cluster.

A connection for a store is one of the types `aws`, `google_cloud_platform` and `wasb` as Airflow's own providers have them, or a
generic one: like one for AWS, or with variables such as AZURE_STORAGE_SAS_TOKEN by name in its extra. The connection for the hub has
the token as its password.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainwright.operators.values.defined_connection import defined_connection

_AWS_EXTRA = {
    "AWS_SESSION_TOKEN": "aws_session_token",
    "AWS_ENDPOINT_URL": "endpoint_url",
    "AWS_REGION": "region_name",
    "AWS_CA_BUNDLE": "verify",
}
_AWS_SWITCHES = ("AWS_ALLOW_HTTP", "AWS_SKIP_SIGNATURE")
"""For a store without TLS, or without keys: Airflow's own extra has no words for them."""
_GOOGLE_PREFIX = "extra__google_cloud_platform__"
_MAX_KEY_BYTES = 65536


@contextmanager
def credentials(store_conn_id: str | None, hub_conn_id: str | None) -> Iterator[None]:
    """Set the credentials of the connections in the environment, and restore it on exit. None sets nothing.

    Raises ConnectionNotDefined, and ValueError for a connection that cannot be used.
    """
    variables = connection_variables(store_conn_id, hub_conn_id)
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


def connection_variables(store_conn_id: str | None, hub_conn_id: str | None) -> dict[str, str]:
    """Return the environment variables with the credentials of the connections.

    Raises ConnectionNotDefined, and ValueError for a connection of another type, or one whose extra cannot be used.
    """
    variables: dict[str, str] = {}
    if store_conn_id:
        variables |= _store_variables(_connection(store_conn_id), store_conn_id)
    if hub_conn_id:
        hub = _connection(hub_conn_id)
        variables["HF_TOKEN"] = str(hub.password or dict(hub.extra_dejson or {}).get("token") or "")
    return {name: value for name, value in variables.items() if value}


def step_credentials(store_conn_id: str | None, hub_conn_id: str | None) -> Any:
    """Return the credentials of the connections for the pods of a job (`StepCredentials`); None without any."""
    if not (store_conn_id or hub_conn_id):
        return None
    from trainwright.jobs.submit.submission import StepCredentials

    return StepCredentials(connection_variables(store_conn_id, hub_conn_id)) or None


def _connection(conn_id: str) -> Any:
    from airflow.sdk import BaseHook

    with defined_connection(conn_id):
        return BaseHook.get_connection(conn_id)


def _store_variables(connection: Any, conn_id: str) -> dict[str, str]:
    kind = str(getattr(connection, "conn_type", None) or "generic")
    if kind not in _OF_TYPE:
        raise ValueError(f"connection {conn_id!r} has the type {kind!r}; a store needs one of {', '.join(_OF_TYPE)}")
    try:
        return _OF_TYPE[kind](connection, dict(connection.extra_dejson or {}))
    except (ValueError, OSError) as error:  # without its text, which may quote a part of a key
        raise ValueError(f"connection {conn_id!r}: its extra cannot be used: {type(error).__name__}") from None


def _aws(connection: Any, extra: dict[str, Any]) -> dict[str, str]:
    texts = {name: extra.get(key) for name, key in _AWS_EXTRA.items()} | {name: _text(extra.get(name)) for name in _AWS_SWITCHES}
    return {
        "AWS_ACCESS_KEY_ID": str(connection.login or ""),
        "AWS_SECRET_ACCESS_KEY": str(connection.password or ""),
        **{name: value for name, value in texts.items() if isinstance(value, str)},
    }


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value or "")


def _google(_connection: Any, extra: dict[str, Any]) -> dict[str, str]:
    """The key of a service account: `keyfile_dict`, or the file `key_path` of the worker."""
    extra = {name.removeprefix(_GOOGLE_PREFIX): value for name, value in extra.items()}
    key = extra.get("keyfile_dict") or ""
    if not key and (path := extra.get("key_path") or extra.get("keyfile_path")):
        with Path(str(path)).open("rb") as file:
            key = file.read(_MAX_KEY_BYTES).decode()
    if not key:
        return {}
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key if isinstance(key, dict) else json.loads(key))}


def _azure(connection: Any, extra: dict[str, Any]) -> dict[str, str]:
    """Account and key, a connection string, a SAS token, or a service principal with `tenant_id`."""
    login, password, host = (str(getattr(connection, name, None) or "") for name in ("login", "password", "host"))
    sas = str(extra.get("sas_token") or "").rpartition("?")[2]
    if text := str(extra.get("connection_string") or ""):
        parts = dict(part.split("=", 1) for part in text.split(";") if part)
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": parts.get("AccountName", ""),
            "AZURE_STORAGE_ACCOUNT_KEY": parts.get("AccountKey", ""),
            "AZURE_STORAGE_SAS_TOKEN": parts.get("SharedAccessSignature", ""),
            "AZURE_STORAGE_ENDPOINT": parts.get("BlobEndpoint", ""),
        }
    if tenant := str(extra.get("tenant_id") or ""):
        account = (urlsplit(host).hostname or host).partition(".")[0]
        principal = {"AZURE_TENANT_ID": tenant, "AZURE_CLIENT_ID": login, "AZURE_CLIENT_SECRET": password}
        return {"AZURE_STORAGE_ACCOUNT_NAME": account, **principal}
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": login,
        "AZURE_STORAGE_ACCOUNT_KEY": "" if sas else password,
        "AZURE_STORAGE_SAS_TOKEN": sas,
    }


def _generic(connection: Any, extra: dict[str, Any]) -> dict[str, str]:
    from trainwright.jobs.credentials.store_variables import all_store_variables

    return _aws(connection, extra) | {name: _text(extra[name]) for name in all_store_variables() if extra.get(name)}


_OF_TYPE: dict[str, Callable[[Any, dict[str, Any]], dict[str, str]]] = {
    "aws": _aws,
    "google_cloud_platform": _google,
    "wasb": _azure,
    "generic": _generic,
}
