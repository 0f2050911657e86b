"""Controllers without a node are tested on the quiet cluster."""

from support.cluster_without_controllers import cluster  # noqa: F401  fixture
