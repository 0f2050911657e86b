"""The process of a fine-tuning that was started on the page: `python -m trainwright.ui.launches.program FOLDER`.

It does what `trainwright finetune` does. SIGINT and SIGTERM suspend the training; the same run can be resumed.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from trainwright.api.errors import ApiError
from trainwright.cluster import NoCluster
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.request.invalid_settings import message_of
from trainwright.jobs.state.identity import COMMAND_LINE
from trainwright.jobs.submit.cluster_fit import MemoryEstimate
from trainwright.jobs.wait.job_events import JobEvents
from trainwright.steps.ends.step_end import EXPECTED
from trainwright.steps.fine_tuning import FineTuned, fine_tune
from trainwright.steps.requests import FineTuning
from trainwright.submission import connect_for_jobs
from trainwright.ui.launches.launches import LaunchFolder, LaunchRequest, cut

SUCCEEDED, FAILED, INTERRUPTED, ALREADY_RUNS = 0, 1, 130, 75
log = logging.getLogger(__name__)


class _Recorder:
    """The watcher of a chain, which records what happens."""

    def __init__(self, folder: LaunchFolder):
        self._folder = folder
        self.step = ""

    def begin(self, step: str) -> None:
        self.step = step
        self._folder.note("begin", step=step)

    def end(self, step: str, note: str) -> None:
        self._folder.note("end", step=step, note=cut(note))

    def line(self, text: str) -> None:
        log.info("%s", text)

    def events(self, events: JobEvents) -> None:
        """The page shows the job itself."""

    def verdict(self, lines: Sequence[str]) -> None:
        """The page of the run shows it."""

    def evaluated(self, result: FineTuned) -> None:
        """The page of the run shows it."""

    def estimate(self, estimate: MemoryEstimate) -> None:
        self._folder.note("memory", text=cut(str(estimate)), fits=estimate.fits)


def main(folder: LaunchFolder) -> int:
    """Run the chain; returns the exit code. One that runs already is left alone."""
    with folder.running() as is_ours:
        if not is_ours:  # two would write to one run
            return ALREADY_RUNS
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        return _run(folder, folder.request())


def _run(folder: LaunchFolder, request: LaunchRequest) -> int:
    recorder = _Recorder(folder)
    folder.note("started", run=request.run)
    try:
        cluster = connect_for_jobs(request.kubeconfig or None, mode=request.mode)
        if (cluster.host or "") != request.host:
            raise NoCluster(f"the kubeconfig now leads to {cluster.host}, and the page was of {request.host}; restart the page")
        result = fine_tune(
            cluster,
            FineTuning.parse(request.parameters),
            owner=COMMAND_LINE,
            run_id=request.run,
            namespace=request.namespace,
            watcher=recorder,
        )
    except (KeyboardInterrupt, Cancelled) as error:
        folder.note("interrupted", step=recorder.step, message=cut(str(error)))
        return INTERRUPTED
    except (*EXPECTED, ApiError, NoCluster) as error:
        text = "\n".join([message_of(error), *getattr(error, "__notes__", ())])
        folder.note("failed", step=recorder.step, message=cut(text))
        return FAILED
    except BaseException as error:
        folder.note("failed", step=recorder.step, message=cut(f"{type(error).__name__}: {error}"))
        raise
    folder.note("succeeded", result={**asdict(result), "dataset": {}, "model": {}})
    return SUCCEEDED


def _interrupt(_number: int, _frame: object) -> None:
    """Interrupt once: a second signal must not cut off the suspension of the training."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    path = Path(sys.argv[1])
    sys.exit(main(LaunchFolder(path.parent, path.name)))
