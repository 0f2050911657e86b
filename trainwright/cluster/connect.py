"""Finds the cluster: an explicit argument, then KUBECONFIG, then the pod's service account, then `~/.kube/config`.

The embedded control plane is never a fallback: it is used only on request.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.cluster.kubeconfig import (
    InvalidKubeconfig,
    check_configuration,
    exists,
    plugin_failure,
    plugin_watch,
    proxy_of,
    read_kubeconfigs,
    set_proxy,
    user_of,
)
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.text.foreign_texts import one_line

_USER_FILE = Path("~/.kube/config")
_START_SECONDS = 60
log = logging.getLogger(__name__)


class NoCluster(Exception):
    """No cluster could be found or reached with the given configuration; the message states what was tried."""

    retryable = False


def connect(
    kubeconfig: str | Path | None = None,
    *,
    context: str | None = None,
    embedded: str | Path | None = None,
    in_cluster: bool = False,
) -> KubernetesCluster:
    """Connect to the cluster that the arguments or the environment specify.

    Order: `embedded` (the home of an embedded control plane, which is started if needed), `kubeconfig`, KUBECONFIG, the
    pod's service account, `~/.kube/config`. `context` selects a context of the kubeconfig; with `in_cluster` only the pod's
    service account counts.
    Raises NoCluster for a file that cannot be read, or if no cluster is configured.
    """
    if embedded is not None:
        return _from_file(str(start_embedded(Path(embedded))), context, "embedded control plane")
    if in_cluster:
        return _in_cluster()
    if kubeconfig is not None:
        return _from_file(str(kubeconfig), context, "argument")
    if os.environ.get("KUBECONFIG"):
        return _from_file(os.environ["KUBECONFIG"], context, "KUBECONFIG")
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (_service_account() / "token").exists():
        if context:
            raise NoCluster(f"the context {context!r} is one of a kubeconfig, and this pod has none; name the kubeconfig, too")
        return _in_cluster()
    if exists(str(_USER_FILE)):
        return _from_file(str(_USER_FILE.expanduser()), context, str(_USER_FILE))
    raise NoCluster(
        "no cluster is configured: KUBECONFIG is not set, no in-cluster service account was found, and ~/.kube/config does not "
        "exist. To start a local cluster run `trainwright up` and set KUBECONFIG to the path that it prints"
    )


def start_embedded(home: Path | None = None) -> Path:
    """Start the embedded control plane of `home`, or of the default home, unless it is running; returns its kubeconfig's path.

    Raises NoCluster with the end of the command's error output if it does not start.
    """
    command = [sys.executable, "-P", "-m", "trainwright.cli", "up", *(["--home", str(home)] if home is not None else [])]
    where = f" in {home}" if home is not None else ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoCluster(f"the embedded control plane{where} was not ready after {_START_SECONDS} s") from error
    if done.returncode != 0:
        raise NoCluster(f"the embedded control plane{where} did not start: {done.stderr.strip()[-500:]}")
    return Path(done.stdout.strip().splitlines()[-1])


def _from_file(files: str, context: str | None, origin: str) -> KubernetesCluster:
    configuration, namespace = _read(files, context, origin)
    log.info("event=cluster_selected origin=%s host=%s namespace=%s", origin, configuration.host, namespace)
    renew = partial(_reload, lambda: _read(files, context, origin)[0])
    return KubernetesCluster(configuration, default_namespace=namespace, origin=origin, renew=renew)


def _reload(load: Callable[[], Any]) -> Any | None:
    """Reload the configuration, whose token may have been renewed. None if it cannot be read."""
    try:
        return load()
    except NoCluster as error:  # the file may be half-written: the 401 is reported with the credentials that there are
        log.warning("event=credentials_not_reloaded error=%s", error)
        return None


def _read(files: str, context: str | None, origin: str) -> tuple[Any, str]:
    """Return the configuration in these files and its namespace. Raises NoCluster."""
    from kubernetes import config  # type: ignore[import-untyped]
    from kubernetes.client import Configuration  # type: ignore[import-untyped]

    readable = [name for name in files.split(os.pathsep) if name]
    missing = [name for name in readable if not exists(name)]
    if not readable or missing:
        raise NoCluster(f"the kubeconfig {', '.join(missing) or repr(files)} ({origin}) cannot be read")
    configuration = Configuration()
    try:
        contents = read_kubeconfigs(readable)
        with plugin_watch() as watch:
            config.load_kube_config(config_file=files, context=context, client_configuration=configuration)
        contexts, active = config.list_kube_config_contexts(config_file=files)
        chosen: dict[str, Any] = next((c for c in contexts if c["name"] == context), active) or {}
        active_context = chosen.get("context") or {}
        if failure := plugin_failure(user_of(contents, str(active_context.get("user"))), configuration, watch):
            raise InvalidKubeconfig(failure)
        set_proxy(configuration, proxy_of(contents, str(active_context.get("cluster"))))
        check_configuration(configuration)
    except (config.ConfigException, InvalidKubeconfig) as error:
        raise NoCluster(f"the kubeconfig {files} ({origin}) cannot be used: {one_line(error)}") from None
    except OSError as error:
        raise NoCluster(f"the kubeconfig {files} ({origin}) cannot be read: {error.strerror or type(error).__name__}") from None
    except (ValueError, TypeError, AttributeError, KeyError):  # the client does not validate the file; its error may quote it
        raise NoCluster(f"the kubeconfig {files} ({origin}) cannot be used: it is not a valid kubeconfig") from None
    _guard_renewal(configuration)
    return configuration, active_context.get("namespace") or "default"


def _guard_renewal(configuration: Any) -> None:
    """Check a token also after the client has renewed it by itself, and keep the output of a failed plugin out of the log."""
    renew = configuration.refresh_api_key_hook

    def renew_and_check(renewed: Any) -> None:
        before = dict(renewed.api_key)
        with plugin_watch() as watch:
            renew(renewed)
        for reason in watch.reasons:
            log.warning("event=credential_plugin_failed reason=%s", reason)
        check_configuration(renewed)
        if not renewed.api_key:  # the old token is answered with 401, after which it is read again
            renewed.api_key.update(before)

    if renew is not None:
        configuration.refresh_api_key_hook = renew_and_check


def _in_cluster() -> KubernetesCluster:
    configuration, namespace = _read_in_cluster()
    log.info("event=cluster_selected origin=in-cluster host=%s namespace=%s", configuration.host, namespace)
    renew = partial(_reload, lambda: _read_in_cluster()[0])
    return KubernetesCluster(configuration, default_namespace=namespace, origin="in-cluster", renew=renew)


def _service_account() -> Path:
    """Return the folder from which the Kubernetes client reads the token of the pod."""
    from kubernetes.config import incluster_config  # type: ignore[import-untyped]

    return Path(incluster_config.SERVICE_TOKEN_FILENAME).parent


def _read_in_cluster() -> tuple[Any, str]:
    from kubernetes import config
    from kubernetes.client import Configuration

    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = (_service_account() / "namespace").read_text("utf-8").strip() or "default"
        set_proxy(configuration, "")
        check_configuration(configuration)
    except (config.ConfigException, InvalidKubeconfig, OSError) as error:
        raise NoCluster(f"this pod's service account cannot be used: {one_line(error)}") from None
    except ValueError:  # such as a token that is not text
        raise NoCluster("this pod's service account cannot be used: its files are not valid") from None
    _guard_renewal(configuration)
    return configuration, namespace
