"""Jobs are tested on the quiet cluster."""

from support.cluster_without_controllers import add_pod, cluster, request_of, set_status  # noqa: F401  fixtures
