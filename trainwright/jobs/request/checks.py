"""The checks of settings that need the schemas of Kubernetes: the classes of settings import this when a request is built."""

from trainwright.jobs.request.field_schemas import volume_problems
from trainwright.jobs.request.manifest_source import checked_manifest
from trainwright.jobs.request.scheduling import scheduling_problems
from trainwright.jobs.request.variables import known_variables

__all__ = ["checked_manifest", "known_variables", "scheduling_problems", "volume_problems"]
