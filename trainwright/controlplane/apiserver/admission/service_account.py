"""Rejects new pods whose service account does not exist, like the ServiceAccount admission plugin.

The plugin also adds the volume with the token; here the node does. Source: plugin/pkg/admission/serviceaccount of Kubernetes.
"""

from __future__ import annotations

from trainwright.api.kinds import POD, SERVICE_ACCOUNT
from trainwright.api.objects import Obj, account_of, name_of, namespace_of
from trainwright.api.rules.webhook import Lookup
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error, not_found_error


def check_service_account(pod: Obj, lookup: Lookup) -> None:
    """Raises Forbidden if the service account of a new pod does not exist."""
    if not isinstance(pod.get("spec"), dict):
        return  # rejected later
    namespace, account = namespace_of(pod), account_of(pod)
    if lookup(SERVICE_ACCOUNT.kind, namespace, account) is None:
        missing = not_found_error(SERVICE_ACCOUNT, account).message
        raise forbidden_error(POD, name_of(pod), f"error looking up service account {namespace}/{account}: {missing}")
