"""What a connection says about a cluster, and the templates of its links into dashboards.

What it does not mean to say is refused: a misspelt key or another type would silently lead to the cluster of the environment. A
link is a fixed http(s) address with names of a job, which are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

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


@dataclass(frozen=True)
class ClusterSettings:
    """Empty values default to the environment; `in_cluster` takes the pod's service account and nothing else.

    `trainjob_url` and `logs_url` are templates of links, see `link_template`; without one there is no such link.
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
    if not template or not all(values.get(name) for name in _PLACEHOLDER.findall(template)):
        return ""
    return _PLACEHOLDER.sub(lambda found: quote(values[found[1]], safe=""), template)


def _is_printable(text: str) -> bool:
    return text.isascii() and not re.search(r"[\x00-\x20\x7f\"'<>\\`{}]", text)
