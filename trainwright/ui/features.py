"""The endpoints of the page by feature, and what they share for as long as the server runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from trainwright.ui.call import Call, Endpoint, Json, Stream
from trainwright.ui.cluster_facts import show_cluster
from trainwright.ui.jobs.job_feed import JobFeeds


class Features:
    """All endpoints and streams of one server. Call `close` at the end."""

    def __init__(self) -> None:
        self._feeds = JobFeeds()
        self.routes: tuple[Endpoint | Stream, ...] = (
            Endpoint("GET", "/cluster", show_cluster),
            Stream("/trainjobs/stream", self._jobs),
        )

    def close(self) -> None:
        """Stop all watches, and with them the streams that show them."""
        self._feeds.close()

    def _jobs(self, call: Call) -> AsyncGenerator[Json, None]:
        session = call.session
        return self._feeds.updates(session.key, session.cluster, call.query.get("namespace", ""))
