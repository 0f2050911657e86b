"""Renews the server certificate before it expires, without a restart."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from trainwright.controlplane.apiserver.auth.credentials import load_credentials, renew_certificate
from trainwright.controlplane.apiserver.http.serve import Serving

log = logging.getLogger(__name__)

LOOK_SECONDS = 6 * 3600.0
"""Interval of the checks; far shorter than the remaining lifetime at renewal."""


class CertificateRotation:
    """Renews the certificate of one server."""

    def __init__(self, credentials: Path, serving: Serving, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self._credentials, self._serving, self._clock = credentials, serving, clock
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, every: float = LOOK_SECONDS) -> None:
        """Check periodically, in a thread, until `stop`."""
        self._thread = threading.Thread(target=self._run, args=(every,), name="certificate", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> bool:
        """Renew the certificate if it expires soon; returns whether it was renewed. Failures are logged and retried."""
        try:
            if not renew_certificate(self._credentials, self._clock()):
                return False
            loaded = load_credentials(self._credentials, now=self._clock())
            self._serving.reload(loaded.certificate, loaded.key)
        except (OSError, ssl.SSLError, ValueError) as error:
            log.error("event=certificate_renewal_failed error=%r", str(error))
            return False
        log.info("event=certificate_renewed")
        return True

    def _run(self, every: float) -> None:
        while not self._stopped.wait(every):
            self.look()
