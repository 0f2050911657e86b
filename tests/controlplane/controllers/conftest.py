"""Controllers without a node are tested on a cluster in memory."""

from support.cluster_without_controllers import cluster  # noqa: F401  fixture
