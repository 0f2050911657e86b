"""Jobs are tested on a cluster without controllers."""

from support.cluster_without_controllers import add_pod, cluster, job, set_status  # noqa: F401  fixtures
