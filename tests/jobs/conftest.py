"""Jobs are tested on the quiet cluster."""

from quiet_cluster import add_pod, cluster, request_of, set_status  # noqa: F401  fixtures
