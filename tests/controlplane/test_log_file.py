"""The log of a control plane: bounded, private, and with everything that the process prints."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.embedded import process_setup
from trainwright.embedded.home import Home
from trainwright.embedded.lifecycle import StartFailed, start
from trainwright.embedded.process_setup import LOG_FILES, LogFile, open_log

_PRINTS = """
import logging, os, subprocess, sys
from pathlib import Path
from trainwright.embedded import process_setup
process_setup.MAX_LOG_BYTES = 20_000
process_setup.LogFile.__init__.__kwdefaults__["max_bytes"] = 20_000
logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[process_setup.log_handler(Path(sys.argv[1]))])
for number in range(3000):
    logging.info("event=said number=%d", number)
    print(f"printed {number}", file=sys.stderr, flush=True)
    os.write(1, f"written {number}\\n".encode())
subprocess.run(["echo", "by a child"])
"""


@pytest.mark.medium
def test_the_log_is_rotated_with_all_that_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "controlplane.log"
    with open_log(path) as log:
        subprocess.run([sys.executable, "-c", _PRINTS, str(path)], stdout=log, stderr=log, check=True)
    files = [path, *sorted(tmp_path.glob("controlplane.log.*"))]
    assert len(files) == LOG_FILES
    assert all(file.stat().st_size <= 20_200 and stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    lines = "".join(file.read_text() for file in reversed(files)).splitlines()
    assert lines[-4:] == ["event=said number=2999", "printed 2999", "written 2999", "by a child"]
    numbers = [int(line.rpartition("=")[2]) for line in lines if line.startswith("event=said")]
    assert numbers == list(range(numbers[0], 3000))


def test_a_full_log_is_rotated_before_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_setup, "MAX_LOG_BYTES", 1000)
    path = tmp_path / "controlplane.log"
    for number in range(6):
        with open_log(path) as log:
            assert log.tell() == 0
            log.write(b"%d" % number * 1000)
    assert [file.read_bytes()[:1] for file in (path, tmp_path / "controlplane.log.1", tmp_path / "controlplane.log.2")] == [
        b"5",
        b"4",
        b"3",
    ]
    assert len(list(tmp_path.iterdir())) == LOG_FILES


def test_text_that_is_not_unicode_is_logged(tmp_path: Path) -> None:
    handler = LogFile(tmp_path / "log", redirects=False)
    handler.stream.write("\udcff\n")
    handler.close()
    assert (tmp_path / "log").read_text() == "\\udcff\n"


@pytest.mark.medium
def test_the_reason_of_a_failed_start_is_found_in_a_full_log(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.log.write_bytes(b"x" * (process_setup.MAX_LOG_BYTES - 10) + b"\n")
    home.database.write_bytes(b"no database" * 1000)
    for _ in range(2):  # the second time with a log that is rotated while the control plane starts
        with pytest.raises(StartFailed, match=r"state\.db: file is not a database"):
            start(home)
