"""Read-only CustomResourceDefinitions, for clients that check whether a CRD is installed."""

from __future__ import annotations

from trainwright.api.admission.crds import custom_resource_definitions
from trainwright.api.kinds import DEFINITION
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

_ACCEPTED = {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}


def seed_definitions(server: ResourceServer, now: str) -> None:
    """Store the definitions, replacing those that differ."""
    for definition in custom_resource_definitions():
        definition["status"] = _status(definition, now)
        definition["spec"]["conversion"] = {"strategy": "None"}
        known = server.store.get(DEFINITION.resource, "", name_of(definition))
        if known is None:
            server.create(DEFINITION, "", definition, WriteOptions(field_manager="trainwright"))
        elif known.object.get("spec") != definition["spec"]:
            server.store.put(DEFINITION.resource, "", name_of(definition), {**known.object, "spec": definition["spec"]})


def _status(definition: Obj, now: str) -> Obj:
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now}
        for kind, reason in _ACCEPTED.items()
    ]
    versions = [version["name"] for version in definition["spec"]["versions"]]
    return {"acceptedNames": definition["spec"]["names"], "conditions": conditions, "storedVersions": versions}
