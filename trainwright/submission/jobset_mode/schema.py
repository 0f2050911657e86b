"""The CRD of TrainJobs in jobset mode: without activeDeadlineSeconds, which JobSets lack; the client enforces deadlines."""

from __future__ import annotations

from functools import cache

from trainwright.api.admission.crds import custom_resource_definitions
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, copy_of, name_of


def trainjob_definition() -> Obj:
    """Return a copy of the CustomResourceDefinition."""
    return copy_of(_definition())


@cache
def _definition() -> Obj:
    (definition,) = (each for each in custom_resource_definitions() if name_of(each) == TRAINJOB.resource)
    for version in definition["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["activeDeadlineSeconds"]
    return definition
