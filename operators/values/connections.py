"""What Airflow connections say: about a cluster and its links into dashboards, and the credentials for stores and the hub.

What a connection to a cluster does not mean to say is refused: a misspelt key or another type would silently lead to the cluster of
the environment. A link is a fixed http(s) address with names of a job, which are escaped.

A connection for a store is one of the types `aws`, `google_cloud_platform` and `wasb` as Airflow's own providers have them, or a
generic one: like one for AWS, or with variables such as AZURE_STORAGE_SAS_TOKEN by name in its extra. The connection for the hub
has the token as its password. Credentials go into the environment of a step in the worker, or into a Secret of a job on the
cluster.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from trainwright.operators.values.airflow_api import AirflowFailException, AirflowNotFoundException

TRAINWRIGHT, KUBERNETES = "trainwright", "kubernetes"
_KUBERNETES_PREFIX = "extra__kubernetes__"
_KEYS = {
    TRAINWRIGHT: ("kubeconfig", "context", "namespace", "submission_mode"),
    KUBERNETES: ("kube_config_path", "cluster_context", "namespace", "submission_mode"),
}
"""The keys of each type, in the order of the fields of ClusterSettings."""
_IN_CLUSTER = "in_cluster"
_LINKS = ("trainjob_url", "logs_url")
_OF_EVERY_TYPE = (_IN_CLUSTER, "allowed_places", *_LINKS)
_OF_PODS = ("xcom_sidecar_container_image", "xcom_sidecar_container_resources", "disable_tcp_keepalive")
"""Of the cncf provider: they concern the pods that it starts itself, and no cluster."""
_FALSE = ("", "false", "0", "no", "off", "none")
PLACEHOLDERS = ("namespace", "name", "uid")
"""What a template may name: the TrainJob's namespace, name and UID."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
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


@dataclass(frozen=True)
class ClusterSettings:
    """Empty values default to the environment; `in_cluster` takes the pod's service account and nothing else.

    `trainjob_url` and `logs_url` are templates of links, see `check_link_template`; without one there is no such link.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    submission_mode: str = ""
    in_cluster: bool = False
    trainjob_url: str = ""
    logs_url: str = ""


def settings_of(conn_type: str, extra: Mapping[str, Any], conn_id: str) -> ClusterSettings:
    """Return the settings of a connection of type `trainwright`, or `kubernetes` of the cncf provider.

    Raises ValueError for another type, an unknown key with a value, or settings that contradict each other or are not supported.
    """
    where = f"connection {conn_id!r}"
    if conn_type not in _KEYS:
        raise ValueError(f"{where} has the type {conn_type!r}; a cluster needs one of {TRAINWRIGHT} or {KUBERNETES}")
    given = {name.removeprefix(_KUBERNETES_PREFIX) if conn_type == KUBERNETES else name: value for name, value in extra.items()}
    given = {name: value for name, value in given.items() if value not in (None, "", [], {})}
    if conn_type == KUBERNETES:
        if "kube_config" in given:
            raise ValueError(f"{where}: kube_config as text is not supported; set kube_config_path")
        if _is_true(given.pop("disable_verify_ssl", "")):
            raise ValueError(f"{where}: disable_verify_ssl is not supported; name the authority in the kubeconfig")
        for name in _OF_PODS:
            given.pop(name, None)
    keys = _KEYS[conn_type]
    known = (*keys, *_OF_EVERY_TYPE)
    for name in given:
        if name not in known:
            from trainwright.text.suggest import suggest

            raise ValueError(f"{where}: the extra {name[:80]!r} is unknown; {suggest(name, known)}")
    kubeconfig, context, namespace, mode = (str(given.get(name, "")).strip() for name in keys)
    links = {name: check_link_template(f"{where}: {name}", str(given.get(name, "")).strip()) for name in _LINKS}
    settings = ClusterSettings(kubeconfig, context, namespace, mode, in_cluster=_is_true(given.get(_IN_CLUSTER, "")), **links)
    if settings.in_cluster and (settings.kubeconfig or settings.context):
        raise ValueError(f"{where}: in_cluster excludes {keys[0]} and {keys[1]}")
    return settings


def _is_true(value: Any) -> bool:
    return str(value).strip().lower() not in _FALSE


def check_link_template(parameter: str, template: str) -> str:
    """Return a template that is safe to link to; empty without one. Raises ValueError naming the parameter, without its text."""
    if not template:
        return ""
    if unknown := [name for name in _PLACEHOLDER.findall(template) if name not in PLACEHOLDERS]:
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise ValueError(f"{parameter}: the placeholder {{{unknown[0][:40]}}} is unknown; known: {known}")
    plain = _PLACEHOLDER.sub("x", template)
    try:
        parts = urlsplit(plain)
    except ValueError:
        raise ValueError(f"{parameter}: expected a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not _is_printable(plain):
        raise ValueError(f"{parameter}: expected a URL such as https://HOST/trainjobs/{{namespace}}/{{name}}")
    if parts.username is not None or parts.netloc != urlsplit(template).netloc:
        raise ValueError(f"{parameter}: its host must be fixed, and have no user name and password")
    return template


def fill_link_template(template: str, **values: str) -> str:
    """Return the URL of a checked template, with escaped values; empty without a template or without one of its values."""
    # A link with a hole would lead to another page.
    if not template or not all(values.get(name) for name in _PLACEHOLDER.findall(template)):
        return ""
    return _PLACEHOLDER.sub(lambda found: quote(values[found[1]], safe=""), template)


def _is_printable(text: str) -> bool:
    return text.isascii() and not re.search(r"[\x00-\x20\x7f\"'<>\\`{}]", text)


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
    if not key:  # a connection without a key: those of the environment are used
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
