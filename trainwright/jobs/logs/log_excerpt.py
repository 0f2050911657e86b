"""What a failure report shows of a log: reads its end, chooses the lines that say why the program failed, and knows common errors.

torchrun ends a failed node with a traceback of its own agent and a summary, neither of which contains the cause. A traceback may be
longer than the report, be followed by a program's summary, or be one of several that were chained.

An API server applies `limitBytes` from the begin of a tail, so that it would cut off the end: the answer is read to its end
instead, and only so much of it is kept as a report needs.

Exit code 1 does not identify a cause: known patterns show which part of a distributed program failed, and whether a retry may help.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.container_log import LineAssembler, is_kubelet_message, split_stamp

_MAX_BYTES = 16 * 1024 * 1024
"""Of an answer. Kubelets split lines at 16 KiB, so that theirs has 3 MiB at most."""
_WHOLE_SECOND = 1.0
"""Resolution of the times in a pod's status."""
_LINE_BYTES = 8 * 1024
LOG_LINES = 20
"""Lines of a program's log in a report."""
LAUNCHER_LINES = 180
"""Maximum number of lines that the launcher adds, and that therefore have to be read in addition: a node of eight ranks."""
READ_LINES = LOG_LINES + LAUNCHER_LINES
_TAILS = (READ_LINES, LOG_LINES, 5, 1)
"""Lines to ask for, fewer if the answer is too long."""
_NARROW_WIDTH = 300
"""Characters of a line that is handed to another process: Airflow stores the event of a trigger in its database."""
_AGENT = re.compile(r"[EWIF]\d{4} \d\d:\d\d:\d\d\S* .*torch/distributed/(elastic/|run\.py)")
_AGENT_ERROR = re.compile(r"torch\.distributed\.elastic\.\S*\b(ChildFailedError|SignalException)\b")
_ADDRESS_WARNING = re.compile(
    r"(\[rank\d+\]:)?\[W\d{4} [^\]]*socket\.cpp:\d+\] \[c10d\] The "
    r"(IPv6 network addresses of|hostname of the client socket|(client|server) socket cannot be initialized [^(]*\(errno: 97\b)"
)
"""torch tries IPv6 first, and warns on each connection where a node has none."""
LINE_WIDTH = 500
"""Characters of a line in a report. The begin of an error says what it is, its end often where."""
_MARK = " ... "


def last_printed(cluster: Cluster, pod: Obj, container: str, *, previous: bool, finished: str = "") -> list[str]:
    """Return the last lines of the container's current or previous run, with those of its launcher, shortened. Raises ApiError.

    `finished` is the RFC 3339 time at which the run has ended. None of a run that began later are returned: the container may have
    been restarted since its status was read.
    """
    for tail in _TAILS:
        if (lines := _read(cluster, pod, container, tail, previous=previous)) is not None:
            return [] if _began_after(lines, finished) else [text for line in lines if (text := _text_of(line)) is not None]
    return []


def _read(cluster: Cluster, pod: Obj, container: str, tail: int, *, previous: bool) -> Sequence[bytes] | None:
    """Return the last `tail` lines; None if they are too long to be read, and fewer can be asked for."""
    chunks = cluster.logs(
        name_of(pod), namespace_of(pod), container=container, tail_lines=tail, timestamps=True, previous=previous
    )
    lines, assembler, size = deque[bytes](maxlen=tail), LineAssembler(_LINE_BYTES), 0
    for chunk in chunks:
        size += len(chunk)
        if size > _MAX_BYTES and tail > _TAILS[-1]:  # lines of megabytes, as of a progress bar: fewer are asked for
            return None
        lines.extend(assembler.feed(chunk))
    if rest := assembler.rest():
        lines.append(rest)
    return lines


def _began_after(lines: Sequence[bytes], finished: str) -> bool:
    first = next((stamp for line in lines if (stamp := split_stamp(line)[0]) is not None), None)
    if first is None or not finished:  # nothing tells the runs apart
        return False
    return first / 1e9 > datetime.fromisoformat(finished).timestamp() + _WHOLE_SECOND


def _text_of(line: bytes) -> str | None:
    """Return the text of a line; None for what a kubelet sends in place of a log."""
    stamp, _, text = split_stamp(line)
    if stamp is None and is_kubelet_message(line):  # printed by no program
        return None
    return shortened(final_state(text.decode("utf-8", "replace")))


def log_tail(lines: Sequence[str], count: int) -> list[str]:
    """Return the `count` lines of the program that matter, mostly its last ones, or of the launcher if the program printed none."""
    return excerpt(program_lines(lines), count)


def narrow_tail(lines: Sequence[str]) -> list[str]:
    """Return the tail of a report as it is handed to another process."""
    return [shortened(line, _NARROW_WIDTH) for line in log_tail(lines, LOG_LINES)]


def last_word(lines: Sequence[str]) -> str:
    """Return the error with which the program ended, else its last line; empty if it printed none."""
    own = program_lines(lines)
    return "" if any(map(_AGENT.match, own)) else last_error(own)


def program_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines without those of the launcher; all of them if there are no others."""
    own = [line for line in lines[: _end_of_program(lines)] if not _AGENT.match(line) and not _ADDRESS_WARNING.match(line)]
    return own if any(line.strip() for line in own) else list(lines)


def _end_of_program(lines: Sequence[str]) -> int:
    """Return where the launcher's last traceback begins, which its summary follows."""
    headers = {traceback.error: traceback.header for traceback in tracebacks(lines)}
    for number, line in enumerate(lines):
        if _AGENT_ERROR.match(line):
            return headers.get(number, number)
    return len(lines)


def excerpt(lines: Sequence[str], count: int) -> list[str]:
    """Return at most `count` lines, the important ones of these, with marks where lines between them are left out."""
    shown = list(lines)
    ranked = list(dict.fromkeys(_by_importance(lines))) if len(lines) > count else []
    for size in range(count, 0, -1):
        if len(shown) <= count:
            break
        shown = list(_with_marks(lines, sorted(ranked[:size])))
    return shown


_FRAME_LINES = 2


def _by_importance(lines: Sequence[str]) -> Iterator[int]:
    """Yield line numbers, the most important first; some more than once."""
    last = len(lines) - 1
    yield last
    chain = _last_chain(lines)
    for traceback in reversed(chain):
        yield from (traceback.error, traceback.header)
        yield from range(traceback.error - 1, max(traceback.header, traceback.error - 1 - _FRAME_LINES), -1)
    if chain:  # an error may have several lines
        yield from range(chain[-1].error + 1, min(chain[-1].error + 1 + _FRAME_LINES, last))
    for before, after in itertools.pairwise(chain):
        yield from (number for number in range(before.error + 1, after.header) if lines[number].strip())
    yield from range(last - 1, -1, -1)


_JOINERS = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)


def _last_chain(lines: Sequence[str]) -> list[Traceback]:
    """Return the last traceback, and those before it that it names as its causes."""
    found = tracebacks(lines)
    chain = found[-1:]
    for before in reversed(found[:-1]):
        between = lines[before.error + 1 : chain[0].header]
        if not any(joiner in line for line in between for joiner in _JOINERS):
            break
        chain.insert(0, before)
    return chain


def _with_marks(lines: Sequence[str], chosen: Sequence[int]) -> Iterator[str]:
    expected = chosen[0]
    for number in chosen:
        left_out = number - expected
        if left_out == 1:
            yield lines[expected]
        elif left_out:
            yield f"... {left_out} lines not shown ..."
        yield lines[number]
        expected = number + 1


def last_error(lines: Sequence[str]) -> str:
    """Return the error of the last traceback, else the last line that is not empty."""
    if found := tracebacks(lines):
        return lines[found[-1].error].strip()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


_HEADER = re.compile(r"(?P<lead>(?:\[[^\]]{1,40}\]:? ?)?[ |+]*)(?:\S.*)?Traceback \(most recent call last\):\s*")


def tracebacks(lines: Sequence[str]) -> list[Traceback]:
    """Return the tracebacks in these lines, in order."""
    found = ((number, match["lead"]) for number, line in enumerate(lines) if (match := _HEADER.fullmatch(line)))
    return [Traceback(number, _error_of(lines, number, lead.replace("+", "|"))) for number, lead in found]


def _error_of(lines: Sequence[str], header: int, lead: str) -> int:
    """Return the number of the first line after the header that is not indented more. Lines of other ranks between are skipped."""
    for number in range(header + 1, len(lines)):
        line = lines[number]
        if lead.strip() and not line.startswith(lead.rstrip()):
            continue
        body = line[len(lead) :] if line.startswith(lead) else line
        if body.strip() and not body.startswith((" ", "\t")):
            return number
    return len(lines) - 1


@dataclass(frozen=True)
class Traceback:
    """A traceback from its header to the line with its exception, by line numbers; the last line so far if it was cut off."""

    header: int
    error: int


def final_state(text: str) -> str:
    """Return the last state of a line that was redrawn with carriage returns, as by a progress bar."""
    return next((state for state in reversed(text.split("\r")) if state.strip()), "")


def shortened(text: str, width: int = LINE_WIDTH) -> str:
    """Return a line of at most `width` characters, of a longer one its begin and its end."""
    if len(text) <= width:
        return text
    tail = width // 4
    return text[: width - tail - len(_MARK)] + _MARK + text[-tail:]


@dataclass(frozen=True)
class LogPattern:
    """`name` is for programs, `description` for people; `is_transient` means that a retry may succeed."""

    name: str
    description: str
    is_transient: bool
    pattern: re.Pattern[str]


def _pattern(name: str, description: str, pattern: str, *, is_transient: bool) -> LogPattern:
    return LogPattern(name, description, is_transient, re.compile(pattern))


GPU_MEMORY = "gpu-out-of-memory"
LOG_PATTERNS = (
    _pattern(
        GPU_MEMORY,
        "the GPU was out of memory",
        r"(CUDA|HIP) out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        is_transient=False,
    ),
    _pattern(
        "data-loader-shared-memory",
        "a data-loader worker had too little shared memory",
        r"insufficient shared memory \(shm\)|DataLoader worker \(pid.*killed by signal: Bus error",
        is_transient=False,
    ),
    _pattern(
        "data-loader-timeout",
        "the data loader timed out",
        r"DataLoader timed out after",
        is_transient=False,
    ),
    _pattern(
        "data-loader-died",
        "a data-loader worker died",
        r"DataLoader worker \(pid.*(exited unexpectedly|killed by signal)",
        is_transient=False,
    ),
    _pattern(
        "nccl-timeout",
        "a collective operation of NCCL timed out",
        r"Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out",
        is_transient=True,
    ),
    _pattern(
        "nccl-error",
        "NCCL lost a peer or its network",
        r"nccl(Remote|System|Internal)Error|NCCL communicator was aborted|ncclUnhandledCudaError",
        is_transient=True,
    ),
    _pattern(
        "rendezvous-timeout",
        "the nodes did not find each other in time",
        r"Rendezvous(Timeout|Connection|Closed|State)Error"
        r"|The client socket has (timed out|failed to connect)"
        r"|Timed out after \d+ seconds waiting for clients"
        r"|Rendezvous timeout|rendezvous.*timed out",
        is_transient=True,
    ),
    _pattern("disk-full", "a disk was full", r"No space left on device|Disk quota exceeded", is_transient=False),
)


def patterns_in(lines: Iterable[str]) -> tuple[LogPattern, ...]:
    """Return the patterns found in a log, each once, in the order of their first line: the first is the likely cause."""
    found: dict[str, LogPattern] = {}
    for line in lines:
        for sign in LOG_PATTERNS:
            if sign.name not in found and sign.pattern.search(line):
                found[sign.name] = sign
    return tuple(found.values())
