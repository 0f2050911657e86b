"""What a person sees of a command: its exit code and the text of both streams."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.waiting import eventually

SHOWN = 6000
"""Characters of an output that a failed scene shows."""


@dataclass(frozen=True)
class Told:
    """The end of a command. `code` is negative for a signal."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        """Both streams, standard output first."""
        return self.out + self.err

    def __str__(self) -> str:
        text = self.text if len(self.text) <= SHOWN else f"{self.text[: SHOWN // 2]}\n[...]\n{self.text[-SHOWN // 2 :]}"
        return f"$ {' '.join(self.words)[:500]}\nexit code {self.code} after {self.seconds:.1f} s\n{text}"


class Running:
    """A command that runs while the scene does something else. Its output goes to files, so that it never waits for a reader."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], folder: Path, label: Sequence[str]):
        folder.mkdir(parents=True)
        self._out, self._err, self._label = folder / "out", folder / "err", tuple(label)
        self._began = time.monotonic()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(words, env=dict(env), cwd=folder, stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    @property
    def text(self) -> str:
        return self._out.read_text("utf-8", "replace") + self._err.read_text("utf-8", "replace")

    def says(self, words: str, seconds: float = 60) -> None:
        """Wait until the command has written these words; fails the scene if it ends before, or in that time does not."""

        def seen() -> bool:
            ended = self._process.poll() is not None
            if words in self.text:
                return True
            assert not ended, f"it ended before it said {words!r}: {self.wait()}"
            return False

        try:
            eventually(seen, seconds, f"{words!r} from {' '.join(self._label)[:200]}")
        except AssertionError as error:
            error.add_note(self.text[-SHOWN:])
            raise

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = 300) -> Told:
        """The end of the command; fails the scene when it takes longer."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{' '.join(self._label)[:300]} did not end within {seconds} s:\n{self.text[-SHOWN:]}") from None
        out, err = (file.read_text("utf-8", "replace") for file in (self._out, self._err))
        return Told(self._label, code, out, err, time.monotonic() - self._began)

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def environment(**more: str) -> dict[str, str]:
    """The environment of a command: that of this process without settings that lead to a cluster or a store."""
    leads = ("KUBECONFIG", "TRAINWRIGHT_", "AIRFLOW_", "AWS_", "HF_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(leads)}
    return {**own, "TRAINWRIGHT_HOME": "", "COLUMNS": "200", **more}
