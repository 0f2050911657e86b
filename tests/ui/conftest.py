"""The page is tested on a cluster without controllers, unless a test needs pods."""

from support.cluster_without_controllers import add_pod, cluster, job, set_status  # noqa: F401  fixtures
