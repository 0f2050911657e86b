"""The definition of TrainJobs in jobset mode: ours, but for the deadline, which no JobSet has. Whoever submits keeps it then."""

from __future__ import annotations

from functools import cache

from trainwright.api.admission.crds import custom_resource_definitions
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, copy_of, name_of


def trainjob_definition() -> Obj:
    """The CustomResourceDefinition; the caller may change it."""
    return copy_of(_definition())


@cache
def _definition() -> Obj:
    (definition,) = (each for each in custom_resource_definitions() if name_of(each) == TRAINJOB.resource)
    for version in definition["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["activeDeadlineSeconds"]
    return definition
