"""Steps are tested on the quiet cluster."""

from quiet_cluster import cluster, set_status  # noqa: F401  fixtures
from small_exports import export, root  # noqa: F401  fixtures
