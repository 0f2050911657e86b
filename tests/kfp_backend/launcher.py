"""Stands in for the launcher of Kubeflow Pipelines. A script that imports nothing of the project.

Usage: launcher.py LOG EXECUTOR_OUTPUT PUBLISHED COMMAND... It has no handler for signals. It reads the streams of the command from
pipes, which break when it dies, and writes them to LOG. Outputs are published only if the command succeeds: EXECUTOR_OUTPUT, the
file that the executor has written, then becomes PUBLISHED. Any failure of the command is its own exit code 1, and so is an output
that is no JSON, such as NaN.
"""

import json
import os
import subprocess
import sys
import threading
from typing import BinaryIO

READ_BYTES = 64 * 1024


def main() -> None:
    log, executor_output, published, *command = sys.argv[1:]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    copies = [threading.Thread(target=copy, args=(stream, log)) for stream in (process.stdout, process.stderr)]
    for each in copies:
        each.start()
    for each in copies:
        each.join()
    if process.wait() != 0:
        sys.exit(1)
    if os.path.exists(executor_output):
        check(executor_output, log)
        os.rename(executor_output, published)


def check(executor_output: str, log: str) -> None:
    """End with exit code 1 if the output is not what a parser of JSON in Go reads: Python writes NaN and Infinity."""

    def refuse(constant: str) -> None:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"proto: syntax error: invalid value {constant}\n")
        sys.exit(1)

    with open(executor_output, encoding="utf-8") as file:
        json.load(file, parse_constant=refuse)


def copy(stream: BinaryIO, log: str) -> None:
    with open(log, "ab", buffering=0) as file:
        while data := stream.read(READ_BYTES):
            file.write(data)


if __name__ == "__main__":
    main()
