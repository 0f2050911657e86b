"""Makes a virtual environment with uv, and reports how far it is."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainwright.controlplane.environments.definition import Pin, pinned, pins_here, read_lock
from trainwright.programs import find_uv, installer_variables, run_in_group
from trainwright.text.foreign_texts import without_credentials

Progress = Callable[[str], None]
_DOWNLOADING = re.compile(r"^\s*(?:Downloading|Building) ([^ ]+)(?: \((.+)\))?$")
_DOWNLOADED = re.compile(r"^\s*(?:Downloaded|Built) ([^ ]+)$")
_INSTALLED = re.compile(r"^Installed (\d+) packages? ")
_NO_NEWS = re.compile(r"^(warning|Using |Resolved |Prepared |Audited |Bytecode | [+~-] |\s*$)")
_MARKS = re.compile(r"[^\x00-\x7f]|^error: ")
"""What uv draws before the parts of a message."""
_MISMATCH = re.compile(r"Hash mismatch for `([^`]{1,200})`")
_COMPUTED = re.compile(r"Computed:\s{1,40}sha256:([0-9a-f]{64})")
_NO_HASH = re.compile(r"(?:hash was provided for|none were provided for|with `==`, but found): `?([^\s`]{1,200})")
_LAST_LINES = 12
_LOCK = "lock.txt"
"""In an environment: the versions that were asked for, and their hashes."""
CUDA_MEBIBYTES = 6 * 1024
"""About the size of PyTorch's CUDA build with its libraries."""
_MEBIBYTE = 1024 * 1024


class InstallFailed(Exception):
    """uv has failed; the message is what it printed."""


class PackageRefused(InstallFailed):
    """A package is not one of the files that the lock has hashes of; the message names it, the indexes, and what to do."""


class Stopped(Exception):
    """The caller has stopped the installation."""


class Installer:
    """Runs uv. `inherited` are descriptors that it keeps open, so that a lock is held until it has ended.

    Raises InstallFailed if there is no uv.
    """

    def __init__(self, progress: Progress, stop: threading.Event, inherited: Sequence[int] = ()):
        self._progress, self._stop, self._inherited = progress, stop, inherited
        self._uv, self._env = uv_and_variables()

    def create(self, folder: Path) -> None:
        """Create an empty environment with this interpreter. Raises InstallFailed, Stopped."""
        self._run("venv", "--quiet", "--no-project", "--python", sys.executable, str(folder))

    def install(
        self, folder: Path, requirements: Sequence[str], lock: str, *, has_gpu: bool, from_source: Sequence[str] = ()
    ) -> None:
        """Install requirements in the versions of the lock; if the lock has hashes, only files that have one of them.

        Raises PackageRefused, InstallFailed, Stopped, OSError.
        """
        pins = read_lock(lock)
        build, options = torch_build(requirements, self._env, has_gpu=has_gpu)
        try:
            self._install(folder, requirements, pins_here(pins, build), options, from_source)
        except InstallFailed as error:  # the index of CPU builds may be out of reach
            if not options or isinstance(error, PackageRefused):
                raise
            check_space(folder, CUDA_MEBIBYTES, "PyTorch's CPU build cannot be had, and the CUDA build")
            self._progress("the index of PyTorch's CPU builds is not reachable; takes the build of PyPI, of several GB")
            self._install(folder, requirements, pins_here(pins), [], from_source)

    def _install(
        self, folder: Path, requirements: Sequence[str], pins: Sequence[Pin], options: Sequence[str], from_source: Sequence[str]
    ) -> None:
        lock = folder / _LOCK
        lock.write_text("".join(f"{pin}\n" for pin in pins), "utf-8")
        command = ["pip", "install", "--python", str(folder / "bin" / "python"), "--constraint", str(lock)]
        if any(pin.hashes for pin in pins):
            # Without `--only-binary`, uv builds a source distribution instead of a wheel whose hash is wrong.
            command += ["--require-hashes", "--build-constraint", str(lock), "--only-binary", ":all:"]
            command += [word for name in from_source for word in ("--no-binary", name)]
            requirements = pinned(requirements, pins)
            if options and (builds := [str(pin.requirement) for pin in pins if pin.version.local]):
                # Alone: the index of builds has other files of other packages, too, such as torchao.
                self._run(*command, *options, "--no-deps", *builds)
            options = ()
        self._run(*command, *options, *requirements)

    def packages(self, folder: Path) -> list[str]:
        """Return what is installed, as requirements. Raises InstallFailed, Stopped."""
        lines = self._run("pip", "freeze", "--python", str(folder / "bin" / "python"))
        return [line.strip() for line in lines if "==" in line or " @ " in line]

    def missing(self, requirements: Sequence[str], folder: Path) -> list[str]:
        """Return those of the requirements of a failed installation that are not in uv's cache. Raises Stopped."""
        target = ["--no-deps", "--dry-run", "--offline", "--target", str(folder / "nowhere"), "--constraint", str(folder / _LOCK)]
        found = []
        for requirement in requirements:
            try:
                self._run("pip", "install", "--quiet", *target, requirement)
            except InstallFailed:  # not in the cache: it has to be downloaded
                found.append(requirement)
        return found

    def _run(self, *arguments: str) -> list[str]:
        """Run uv and return the lines that it printed. Raises InstallFailed, Stopped."""
        lines: list[str] = []
        report = self._reporter()

        def keep(line: str) -> None:
            lines.append(line)
            report(line)

        code = run_in_group(
            [self._uv, "--no-progress", *arguments],
            environment=self._env,
            timeout_seconds=None,
            on_line=keep,
            cwd=Path("/"),
            pass_fds=self._inherited,
            umask=0o022,
            stop=self._stop,
        )
        if self._stop.is_set():
            raise Stopped
        if code:
            raise refusal(lines, sources(self._env, arguments)) or InstallFailed(failure(lines))
        return lines

    def _reporter(self) -> Callable[[str], None]:
        """Return a function that takes the lines of uv, and reports what is downloaded meanwhile."""
        waiting: dict[str, str] = {}
        done = 0

        def report(line: str) -> None:
            nonlocal done
            if started := _DOWNLOADING.match(line):
                waiting[started[1]] = started[2] or ""
            elif (finished := _DOWNLOADED.match(line)) and waiting.pop(finished[1], None) is not None:
                done += 1
            elif installed := _INSTALLED.match(line):
                return self._progress(f"{installed[1]} packages installed, compiling them")
            else:
                return None
            names = ", ".join(f"{name} ({size})" if size else name for name, size in list(waiting.items())[:3])
            return self._progress(f"{done} of {done + len(waiting)} large downloads done" + (f": {names}" if names else ""))

        return report


def check_space(folder: Path, mebibytes: int, what: str) -> None:
    """Raise InstallFailed if less than that is free on the disk of a folder."""
    free = shutil.disk_usage(folder).free // _MEBIBYTE
    if free < mebibytes:
        raise InstallFailed(f"{what} needs about {mebibytes} MiB in {folder}, and {free} MiB are free")


def uv_and_variables() -> tuple[str, dict[str, str]]:
    """Return the program uv, of this environment or of the PATH, and its variables. Raises InstallFailed."""
    found = find_uv()
    if found is None:
        raise InstallFailed("uv is not installed, which installs packages: pip install 'trainwright[embedded]' brings it")
    return found, installer_variables(os.environ) | {"UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}


def torch_build(requirements: Sequence[str], env: Mapping[str, str], *, has_gpu: bool) -> tuple[str, list[str]]:
    """Return the build of PyTorch for this machine, as in its version, and the options for it if another is to be tried without them.

    On Linux PyPI has a CUDA build of several GB, so that without a GPU the CPU build is tried first.
    """
    folders = [Path(link) for link in env.get("UV_FIND_LINKS", "").split(",") if link and "://" not in link]
    local = [wheel.name for folder in folders for wheel in folder.glob("torch-*.whl")]
    wants_torch = any(re.split(r"[^A-Za-z0-9_.-]", requirement)[0] == "torch" for requirement in requirements)
    if local or not wants_torch:
        return "cpu" if any("+cpu-" in name for name in local) else "", []
    return ("", []) if has_gpu or sys.platform != "linux" else ("cpu", ["--torch-backend=cpu"])


def sources(env: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
    """Return the indexes and folders in which uv looks for packages, without credentials."""
    if "--torch-backend=cpu" in arguments:
        return ["https://download.pytorch.org/whl/cpu"]
    indexes = " ".join(
        env.get(name, "") for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
    ).split()
    if not (env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL") or env.get("UV_NO_INDEX")):
        indexes.insert(0, "https://pypi.org/simple")
    return [without_credentials(each) for each in (*indexes, *env.get("UV_FIND_LINKS", "").split(",")) if each]


def refusal(lines: Sequence[str], places: Sequence[str]) -> PackageRefused | None:
    """Return the error for a package that uv has refused for its hash; None if uv has failed for another reason."""
    text = "\n".join(lines)
    if (mismatch := _MISMATCH.search(text)) and (computed := _COMPUTED.search(text)):
        package, problem = mismatch[1], f"its SHA-256 is {computed[1]}, which is not in the lock"
    elif unknown := _NO_HASH.search(text):
        package, problem = unknown[1], "the lock has no hash of it"
    else:
        return None
    return PackageRefused(
        f"{package} from {' or '.join(places)} is refused: {problem}. Use an index with the original files, or give the environment "
        "another lock in environments.yaml (docs/environments.md, Verification)"
    )


def failure(lines: Sequence[str]) -> str:
    """Return what uv says of its failure, in one line without its marks."""
    told = [line for line in lines if not (_NO_NEWS.match(line) or _DOWNLOADING.match(line) or _DOWNLOADED.match(line))]
    words = " ".join(_MARKS.sub(" ", line) for line in told[-_LAST_LINES:]).split()
    return without_credentials(" ".join(words)) if words else "uv has failed without a message"
