"""`python -m tests.cli.hostile_table [COMMAND ...]`: prints how each command ended for all hostile inputs, and every failure.

The cases run in other processes with limits of time and memory, so that crashes and hangs are counted as well.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from hostile_inputs import isolated_environment, outcome, parameters, values_of

SECONDS, BYTES = 10, 4 * 2**30
COLUMNS = ("accepted", "clear error", "traceback", "crash", "hang", "silent", "escapes", "undocumented code")
Case = tuple[str, list[str]]


def main(commands: list[str]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as folder, isolated_environment(Path(folder)):
        for parameter in parameters():
            command = " ".join(parameter.command)
            if commands and command not in commands:
                continue
            values = values_of(parameter)
            for value, kind, detail in _outcomes([(value, parameter.call(value)) for value in values]):
                counts[command][kind] += 1
                if kind not in ("accepted", "clear error"):
                    print(ascii(f"{kind}: {command} {parameter.option or parameter.name} {value[:40]!r}: {detail}")[1:-1])
    print(f"{'command':<16}" + "".join(f"{column:>18}" for column in COLUMNS))
    for command, by_kind in counts.items():
        print(f"{command:<16}" + "".join(f"{by_kind[column]:>18}" for column in COLUMNS))
    total: Counter[str] = sum(counts.values(), Counter())
    print(f"{'all':<16}" + "".join(f"{total[column]:>18}" for column in COLUMNS))


def _outcomes(cases: list[Case]) -> Iterator[tuple[str, str, str]]:
    """Yield value, outcome and detail; after a crash, the cases behind it run in another process."""
    while cases:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _run(cases, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            answers = stream.read().decode().split("\0")[:-1]
        _, status = os.waitpid(child, 0)
        for (value, _), answer in zip(cases, answers, strict=False):
            kind, _, detail = answer.partition("\n")
            yield value, kind, detail
        cases = cases[len(answers) :]
        if cases:
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            yield cases[0][0], "hang" if number == signal.SIGALRM else "crash", f"signal {number}"
            cases = cases[1:]


def _run(cases: list[Case], writing: int) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    runner = CliRunner()
    for _, words in cases:
        signal.alarm(SECONDS)
        found = outcome(words, runner)
        os.write(writing, f"{found.kind}\n{found.detail[:500]}\0".encode("utf-8", "replace"))
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
