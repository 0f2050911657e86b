"""Errors of pipelines: what cannot be compiled, what a server of Kubeflow Pipelines answers, and how a run ended.

Each has its exit code of docs/exit-codes.md. No message contains a token, a header or the text of an HTTP library.
"""

from __future__ import annotations

from trainwright.jobs.diagnosis.exit_codes import ExitCode

_EXIT_CODES = {0: ExitCode.unreachable, 400: ExitCode.bad_input, 401: ExitCode.forbidden, 403: ExitCode.forbidden}
_TRANSIENT = frozenset({0, 408, 425, 429, 500, 502, 503, 504})
_NOT_DONE = frozenset({429, 503})
"""Answers of a server, or of what stands before it, that has not begun with the request."""


class PipelineError(Exception):
    """The base of all errors of pipelines."""

    exit_code: ExitCode = ExitCode.other


class KfpMissing(PipelineError):
    """The package kfp is not installed."""

    def __init__(self) -> None:
        super().__init__("Kubeflow Pipelines needs a client that is not installed: pip install 'trainwright[kfp]'")


class BadPipeline(PipelineError, ValueError):
    """There is no such pipeline, or it cannot be compiled, or not run in this way."""

    exit_code = ExitCode.bad_input


class BadParameters(PipelineError, ValueError):
    """Parameters that the pipeline does not have, lacks, or has with another type; `problems` has a line for each."""

    exit_code = ExitCode.bad_input

    def __init__(self, problems: list[str]):
        super().__init__("; ".join(problems))
        self.problems = problems


class BadSchedule(PipelineError, ValueError):
    """The schedule cannot be created as asked for: its name, its cron expression, or what would be replaced."""

    exit_code = ExitCode.bad_input


class BadHost(PipelineError, ValueError):
    """The address of the server, or the token for it, cannot be used."""

    exit_code = ExitCode.bad_input


class ServerError(PipelineError):
    """A request failed. `status` is that of the answer, 0 if there was none; `retry_after` is in seconds, if the server says so.

    `never_sent`: no connection was made at all.
    """

    def __init__(
        self,
        message: str,
        status: int = 0,
        *,
        retry_after: float | None = None,
        never_sent: bool = False,
        permanent: bool = False,
    ):
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.never_sent, self._permanent = never_sent, permanent

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]
        return _EXIT_CODES.get(self.status, ExitCode.unreachable if self.status in _TRANSIENT else ExitCode.other)

    @property
    def retryable(self) -> bool:
        """Whether a retry of the same request can succeed."""
        return self.status in _TRANSIENT and not self._permanent

    @property
    def may_have_happened(self) -> bool:
        """Whether the server may have done what was asked for, although it did not say so."""
        return self.retryable and not self.never_sent and self.status not in _NOT_DONE


class NotKubeflowPipelines(ServerError):
    """What answers at the address is no API of Kubeflow Pipelines 2."""

    exit_code = ExitCode.unreachable


class UnknownOutcome(ServerError):
    """The response to a create was lost, and the server does not show the object: it may or may not exist later."""

    exit_code = ExitCode.unreachable


class RunFailed(PipelineError):
    """The run ended without success."""

    exit_code = ExitCode.failed


class RunDeleted(PipelineError):
    """The run was deleted while it was waited for."""

    exit_code = ExitCode.deleted


class RunTimeout(PipelineError):
    """The run did not end in time."""

    exit_code = ExitCode.timeout
