"""Steps are tested on a cluster without controllers."""

from support.cluster_without_controllers import cluster, set_status  # noqa: F401  fixtures
from support.export_fixtures import export, root  # noqa: F401  fixtures
