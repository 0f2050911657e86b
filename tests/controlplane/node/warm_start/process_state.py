"""Prints the state of its process as JSON, without what differs between two runs: for test_warm_torchrun.py, which runs it."""

import ctypes
import json
import locale
import logging
import multiprocessing.process
import multiprocessing.spawn
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

STATUS = (
    "Name Umask Uid Gid Groups NoNewPrivs Seccomp SigPnd SigBlk SigIgn SigCgt CapInh CapPrm CapEff CapBnd CapAmb Cpus_allowed"
)
OF_THE_RUN = ("PET_MASTER_PORT", "MASTER_PORT")


def read(name: str) -> str:
    return Path("/proc/self", name).read_bytes().decode(errors="replace")


def words(name: str) -> list[str]:
    return sorted(word for word in read(name).rstrip("\0").split("\0") if not word.startswith(OF_THE_RUN))


def describe(value: object) -> str:
    return str(value).split(" at ")[0]


status = dict(line.split(":", 1) for line in read("status").splitlines())
main = vars(sys.modules["__main__"])
libc = ctypes.CDLL(None)
death = ctypes.c_int()
libc.prctl(2, ctypes.byref(death))
streams = (sys.stdin, sys.stdout, sys.stderr)
state = {
    "interpreter": [str(sys.flags), sys.executable, sys._base_executable, sys.prefix, sys.base_prefix, sys.warnoptions],
    "command": [sys.argv, sys.orig_argv, sys.path, os.getcwd()],
    "variables": {name: value for name, value in os.environ.items() if name not in OF_THE_RUN},
    "shown": [words("cmdline"), words("environ")],
    "status": {name: status[name].split() for name in STATUS.split()},
    "proc": [read(name) for name in ("comm", "limits", "oom_score_adj", "personality", "cgroup")],
    "files": [os.readlink("/proc/self/exe"), len(os.listdir("/proc/self/fd"))],
    "kinds": [os.readlink(f"/proc/self/fd/{number}").split(":")[0] for number in range(3)],
    "priority": [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)],
    "texts": [[each.encoding, each.errors, each.line_buffering, each.write_through, each.isatty()] for each in streams],
    "streams": [[each.name, each.mode, describe(each.buffer), each.seekable()] for each in streams],
    "signals": {int(number): describe(signal.getsignal(number)) for number in signal.valid_signals()},
    "threads": [len(os.listdir("/proc/self/task")), torch.get_num_threads(), torch.get_num_interop_threads()],
    "parallel": torch.__config__.parallel_info(),
    "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), time.tzname, tempfile.gettempdir()],
    "spawned": [describe(multiprocessing.spawn.get_executable()), multiprocessing.process.ORIGINAL_DIR],
    "multiprocessing": [multiprocessing.current_process().name, describe(multiprocessing.parent_process())],
    "main": {name: describe(value) for name, value in main.items() if name.startswith("__")},
    "process": [libc.prctl(3, 0, 0, 0, 0), death.value, os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "warm": "peft" in sys.modules,
    "hooks": [describe(sys.excepthook), describe(sys.displayhook), logging.root.level, describe(logging.root.handlers)],
}
print("STATE " + json.dumps(state), flush=True)
