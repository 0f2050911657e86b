"""Installations from locks with hashes, by the real uv from small packages that are changed after they were locked."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.tiny_packages import locked, only_from, write_index, write_sdist, write_wheel

from trainwright.controlplane.environments.installer import (
    Installer,
    InstallFailed,
    PackageRefused,
    failure,
    sources,
    torch_build,
)

pytestmark = pytest.mark.medium
SPECIFIC = f"cp{sys.version_info[0]}{sys.version_info[1]}-none-any"
"""The tag of a wheel that is preferred to one of any Python."""
Install = Callable[..., list[str]]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    write_wheel(folder, "tiny", "1.0", "tinier")
    write_wheel(folder, "tinier", "2.0")
    return folder


@pytest.fixture(params=["folder", "index"])
def install(request: pytest.FixtureRequest, tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install from the folder of wheels, or from an index that names their present hashes; return what is installed."""

    def run(*requirements: str, lock: str, from_source: tuple[str, ...] = ()) -> list[str]:
        variables = only_from(wheels, tmp_path / "uv")
        if request.param == "index":
            variables = {"UV_DEFAULT_INDEX": write_index(tmp_path / "index", wheels), "UV_CACHE_DIR": str(tmp_path / "uv")}
        for name in ("UV_FIND_LINKS", "UV_NO_INDEX", "UV_DEFAULT_INDEX", "UV_CACHE_DIR", "PIP_FIND_LINKS"):
            monkeypatch.setenv(name, variables.get(name, ""))
        installer, place = Installer(lambda _: None, threading.Event()), tmp_path / "environment"
        if not place.exists():
            installer.create(place)
        try:
            installer.install(place, requirements or ("tiny>=1",), lock, has_gpu=True, from_source=from_source)
        except InstallFailed:
            assert installer.packages(place) == [], "nothing is left of a refused installation"
            raise
        return installer.packages(place)

    return run


def lock_of(folder: Path) -> str:
    return locked(*sorted(folder.iterdir()))


def test_files_of_the_lock_are_installed(install: Install, wheels: Path) -> None:
    assert install(lock=lock_of(wheels)) == ["tinier==2.0", "tiny==1.0"]


def changed_wheel(wheels: Path) -> None:
    write_wheel(wheels, "tinier", "2.0", "evil; python_version < '3'")


def wheel_with_another_dependency(wheels: Path) -> None:
    write_wheel(wheels, "evil", "6")
    write_wheel(wheels, "tinier", "2.0", "evil")


def changed_wheel_beside_an_sdist(wheels: Path) -> None:
    changed_wheel(wheels)
    write_sdist(wheels, "tinier", "2.0", wheels.with_name("marker"))


@pytest.mark.parametrize(
    ("change", "refused"),
    [(changed_wheel, "tinier==2.0"), (wheel_with_another_dependency, "evil"), (changed_wheel_beside_an_sdist, "tinier==2.0")],
)
def test_changed_package_is_refused(
    change: Callable[[Path], None], refused: str, install: Install, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_NO_VERIFY_HASHES", "1")
    lock = lock_of(wheels)
    change(wheels)
    with pytest.raises(PackageRefused) as caught:
        install(lock=lock)
    message = str(caught.value)
    assert message.startswith(f"{refused} from ")
    assert str(wheels.parent) in message, "the index"
    assert "its SHA-256 is " in message or "the lock has no hash of it" in message
    assert "docs/environments.md, Verification" in message
    assert not wheels.with_name("marker").exists(), "no code of the source distribution has run"


def test_wheel_with_a_better_tag_does_not_replace_the_locked_wheel(
    install: Install, wheels: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lock = lock_of(wheels)
    write_wheel(wheels, "tinier", "2.0", tag=SPECIFIC)
    if request.node.callspec.params["install"] == "folder":  # whose hashes uv learns when it has chosen
        with pytest.raises(PackageRefused, match=r"^tinier==2\.0 from "):
            install(lock=lock)
        return
    assert install(lock=lock) == ["tinier==2.0", "tiny==1.0"]
    (about,) = (tmp_path / "environment").rglob("tinier-2.0.dist-info/WHEEL")
    assert SPECIFIC not in about.read_text()


def test_source_distribution_is_built_only_where_the_definition_says_so(install: Install, wheels: Path) -> None:
    (wheels / "tinier-2.0-py3-none-any.whl").unlink()
    marker = wheels.with_name("marker")
    write_sdist(wheels, "tinier", "2.0", marker)
    lock = lock_of(wheels)
    with pytest.raises(InstallFailed, match="tinier"):
        install(lock=lock)
    assert not marker.exists()
    with pytest.raises(InstallFailed, match="tinier"):
        install(lock=lock, from_source=("tinier",))
    assert marker.read_text() == "built"


def test_package_that_the_lock_lacks_is_refused(install: Install, wheels: Path) -> None:
    lock = locked(wheels / "tiny-1.0-py3-none-any.whl")
    with pytest.raises(PackageRefused, match=r"^tinier from .* is refused: the lock has no hash of it"):
        install(lock=lock)


@pytest.mark.parametrize("name", ["tiny", "tinier"])
def test_lock_in_which_a_hash_is_missing_is_refused(name: str, install: Install, wheels: Path) -> None:
    lines = lock_of(wheels).splitlines()
    lock = "\n".join(line.split(" --hash")[0] if line.startswith(f"{name}==") else line for line in lines)
    with pytest.raises(PackageRefused, match=rf"^{name}\b.* the lock has no hash of it"):
        install(lock=lock)


def test_lock_without_hashes_fixes_versions_only(install: Install, wheels: Path) -> None:
    write_wheel(wheels, "tinier", "3.0")
    assert install(lock="tiny==1.0\ntinier==2.0\n") == ["tinier==2.0", "tiny==1.0"]


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu"])
def test_each_build_of_a_version_is_verified_by_its_own_hashes(
    version: str, install: Install, wheels: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    other = {"2.13.0": "2.13.0+cpu", "2.13.0+cpu": "2.13.0"}[version]
    wheel, elsewhere = write_wheel(wheels, "torch", version), write_wheel(tmp_path / "elsewhere", "torch", other)
    lock = locked(wheel, elsewhere)
    if request.node.callspec.params["install"] == "index" and version != "2.13.0":
        with pytest.raises(
            PackageRefused, match=r"^torch.* the lock has no hash of it"
        ):  # only a folder is known to have that build
            install("torch", lock=lock)
        return
    assert install("torch", lock=lock) == [f"torch=={version}"]


def test_build_is_taken_alone_from_its_index(
    install: Install, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, lock = tmp_path / "builds", lock_of(wheels)
    lock += locked(write_wheel(builds, "torch", "2.13.0+cpu", "tinier"), write_wheel(tmp_path / "pypi", "torch", "2.13.0"))
    write_wheel(builds, "tinier", "2.0", tag=SPECIFIC)
    options = ["--find-links", str(builds)]
    monkeypatch.setattr("trainwright.controlplane.environments.installer.torch_build", lambda *_, **__: ("cpu", options))
    assert install("torch>=2", "tiny", lock=lock) == ["tinier==2.0", "tiny==1.0", "torch==2.13.0+cpu"]


@pytest.mark.parametrize(
    ("requirements", "has_gpu", "local", "build"),
    [
        (["torch==2.13.0"], False, "", ("cpu", ["--torch-backend=cpu"])),
        (["torch==2.13.0"], True, "", ("", [])),
        (["torch==2.13.0"], False, "2.13.0", ("", [])),
        (["torch==2.13.0"], True, "2.13.0+cpu", ("cpu", [])),
        (["torchtune", "jax"], False, "", ("", [])),
    ],
)
def test_build_of_torch(
    requirements: list[str],
    has_gpu: bool,
    local: str,
    build: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    if local:
        write_wheel(tmp_path, "torch", local)
    assert torch_build(requirements, {"UV_FIND_LINKS": str(tmp_path)}, has_gpu=has_gpu) == build


def test_sources_are_named_without_credentials() -> None:
    variables = {"UV_INDEX": "https://me:secret@mirror.example.com/simple", "UV_FIND_LINKS": "/a folder,/other"}
    assert sources(variables, []) == ["https://pypi.org/simple", "https://mirror.example.com/simple", "/a folder", "/other"]
    assert sources({"UV_NO_INDEX": "1", "UV_FIND_LINKS": "/other"}, []) == ["/other"]
    assert sources(variables, ["--torch-backend=cpu"]) == ["https://download.pytorch.org/whl/cpu"]


def test_failure_of_uv_is_one_line_without_passwords() -> None:
    lines = [
        "Using Python 3.11.7",
        "error: Failed to fetch: `https://me:secret@index.example.com/simple/jax/?token=abc`",
        "  Caused by: dns error",
    ]
    assert failure(lines) == "Failed to fetch: `https://index.example.com/simple/jax/ Caused by: dns error"
    assert failure([]) == "uv has failed without a message"
