"""Controllers without a node are tested on the quiet cluster."""

from quiet_cluster import cluster  # noqa: F401  fixture
