"""Steps are tested on the quiet cluster."""

from quiet_cluster import cluster  # noqa: F401  fixture
from small_exports import export, root  # noqa: F401  fixtures
