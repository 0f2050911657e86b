"""The images: fixed versions that the package accepts; and, for `make images-test`, built by buildah on a Debian base and started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.client_environments import ROOT

from trainwright import __version__

IMAGES = ROOT / "deploy" / "images"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REGISTRY = "localhost/trainwright"


def fixed(name: str) -> dict[str, str]:
    """The versions of a lock file, by package."""
    lines = (IMAGES / f"{name}.txt").read_text("utf-8").splitlines()
    requirements = [Requirement(line.rstrip(" \\")) for line in lines if "==" in line and line[0] not in "# "]
    hashes = [line for line in lines if line.strip().startswith("--hash=sha256:")]
    assert len(hashes) >= len(requirements)
    return {canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==") for requirement in requirements}


def required(extra: str) -> list[Requirement]:
    """What an extra requires, with the extras that it names."""
    found = []
    for text in PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            found += [each for inner in requirement.extras for each in required(inner)]
        else:
            found.append(requirement)
    return found


@pytest.mark.parametrize("name", ["launcher", "trainer", "controller"])
def test_an_image_installs_fixed_versions_that_the_package_accepts(name: str) -> None:
    versions = fixed(name)
    for wanted in [*map(Requirement, PROJECT["dependencies"]), *required(name)]:
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), f"{wanted}: run `make image-locks`"


def test_a_trainer_for_machines_without_gpus_leaves_out_cuda_alone(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text((IMAGES / "trainer.txt").read_text("utf-8"), "utf-8")
    script = [sys.executable, str(IMAGES / "without_cuda.py"), str(file)]
    printed = subprocess.run(script, capture_output=True, text=True, check=True, timeout=60).stdout
    versions = fixed("trainer")
    assert printed == f"torch=={versions['torch']}\n"
    left = {line.partition("==")[0] for line in file.read_text("utf-8").splitlines() if "==" in line and line[0] not in "# "}
    removed = versions.keys() - {canonicalize_name(name) for name in left}
    assert {"torch", "triton", "nvidia-cudnn-cu13"} <= removed
    assert all(name.startswith(("nvidia-", "cuda-")) for name in removed - {"torch", "triton", "bitsandbytes"})


@pytest.mark.parametrize(("answering", "used"), [(("docker", "buildah"), "docker"), (("buildah",), "buildah"), ((), "")])
def test_a_builder_that_does_not_answer_is_passed_over(tmp_path: Path, answering: tuple[str, ...], used: str) -> None:
    for name in ("docker", "podman", "buildah"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$1" != info ] || exit {0 if name in answering else 1}\necho {name} "$@"\n', "utf-8")
        program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = [str(IMAGES / "build.sh"), "controller"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0) is bool(used), done.stderr
    assert f"{used} build" in done.stdout if used else "answers `info`" in done.stderr


def test_the_package_is_built_with_fixed_versions() -> None:
    versions = fixed("build")
    for text in (IMAGES / "build.in").read_text("utf-8").split():
        wanted = Requirement(text)
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), f"{wanted}: run `make image-locks`"


def test_one_version_is_the_tag_of_every_image() -> None:
    for file in (ROOT / "deploy/controller/kustomization.yaml", ROOT / "deploy/runtimes/kustomization.yaml"):
        tags = [line.split()[-1].strip("'\"") for line in file.read_text("utf-8").splitlines() if "newTag" in line]
        assert set(tags) == {__version__}, file


def test_the_context_has_what_the_dockerfile_copies() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    lines = (IMAGES / "Dockerfile").read_text("utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]]
    assert copied
    for path in copied:
        assert any(path == each or path.startswith(f"{each}/") for each in allowed), path
        assert "$" in path or (ROOT / path).exists(), path


missing = [
    reason
    for reason, holds in (
        ("`make images-test` runs them", "TRAINWRIGHT_IMAGES_TEST" not in os.environ),
        ("buildah is not installed", shutil.which("buildah") is None),
        ("debootstrap is not installed", shutil.which("debootstrap") is None),
        ("debootstrap needs root", os.getuid() != 0),
    )
    if holds
]
built = pytest.mark.skipif(bool(missing), reason="; ".join(missing))
pytestmark = pytest.mark.timeout(1800)


def run(*command: str, cwd: Path = ROOT, **env: str) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=1500, env={**os.environ, **env}, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A base image with Debian's Python, in a store of images of its own."""
    folder = tmp_path_factory.mktemp("images")
    with pytest.MonkeyPatch.context() as patch:
        configuration = folder / "storage.conf"
        patch.setenv("CONTAINERS_STORAGE_CONF", str(configuration))
        for driver in ("overlay", "vfs"):  # the second works everywhere, in several times the time
            places = f'graphroot = "{folder}/{driver}/graph"\nrunroot = "{folder}/{driver}/run"\n'
            configuration.write_text(f'[storage]\ndriver = "{driver}"\n{places}', "utf-8")
            if subprocess.run(["buildah", "info"], capture_output=True, timeout=60, check=False).returncode == 0:
                break
        patch.setenv("BUILDAH_ISOLATION", "chroot")
        root = folder / "debian"
        run("debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", "bookworm", str(root))
        container = run("buildah", "from", "scratch").strip()
        run("buildah", "add", "-q", container, str(root), "/")
        run("buildah", "commit", "-q", container, f"{REGISTRY}/base:1")
        run("buildah", "rm", container)
        shutil.rmtree(root)
        yield f"{REGISTRY}/base:1"
        run("buildah", "rmi", "--all", "--force")


def build(name: str, base: str, source: Path = ROOT) -> str:
    """Build one image as a user would, with the package index and the certificates of this machine."""
    arguments = [f"{key}={os.environ[key]}" for key in ("PIP_INDEX_URL", "PIP_CERT", "NPM_CONFIG_REGISTRY") if key in os.environ]
    given = [word for argument in arguments for word in ("--argument", argument)]
    certificates = ["--option", "--volume=/etc/ssl/certs:/etc/ssl/certs:ro"] if "PIP_CERT" in os.environ else []
    command = [str(source / "deploy/images/build.sh"), "--builder", "buildah", "--base", base, "--registry", REGISTRY]
    run(*command, "--option", "--layers", *given, *certificates, name, cwd=source)
    return f"{REGISTRY}/{name}:{__version__}"


def started(image: str, *command: str, user: str = "") -> str:
    """What a command prints in a container of the image, as its own user or another."""
    container = run("buildah", "from", image).strip()
    try:
        if user:
            run("buildah", "config", "--user", user, container)
        return run("buildah", "run", container, "--", *command)
    finally:
        run("buildah", "rm", container)


def configuration(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("buildah", "inspect", "--type", "image", image))["OCIv1"]["config"]
    return found


ON_A_READ_ONLY_ROOT = """
root=$1 user=$2; shift 2
mount --bind "$root" "$root" && mount -o remount,ro,bind "$root" && mount -t tmpfs tmpfs "$root/tmp" &&
mount --rbind /dev "$root/dev" && mount --rbind /proc "$root/proc" && exec chroot --userspec="$user" "$root" "$@"
"""


def started_read_only(image: str, *command: str, user: str) -> str:
    """What a command prints on a root file system that nobody can write, but for /tmp: `readOnlyRootFilesystem` and an emptyDir."""
    container = run("buildah", "from", image).strip()
    try:
        environment = ["/usr/bin/env", "-i", *configuration(image)["Env"], "HOME=/tmp"]
        root = run("buildah", "mount", container).strip()
        return run("unshare", "--mount", "bash", "-c", ON_A_READ_ONLY_ROOT, "-", root, user, *environment, *command)
    finally:
        run("buildah", "rm", container)


def layers(image: str) -> list[str]:
    found: list[str] = json.loads(run("buildah", "inspect", "--type", "image", image))["OCIv1"]["rootfs"]["diff_ids"]
    return found


@built
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("launcher", "kfp, boto3, obstore, huggingface_hub, pyarrow, trainwright.components, trainwright.pipelines"),
        ("controller", "trainwright.cli.controller"),
    ],
)
def test_an_image_starts_as_any_user_and_lists_what_it_contains(name: str, modules: str, base: str) -> None:
    image = build(name, base)
    for user in ("", "12345:0"):
        assert started(image, "trainwright", "--version", user=user).strip() == __version__
        shown = started(image, "python", "-c", f"import {modules}, os; print(os.getuid())", user=user)
        assert shown.strip() == (user or "1000").partition(":")[0]
        look = f"import {modules}, os, pathlib; print(os.getuid()); pathlib.Path('/opt/code/x').touch()"
        with pytest.raises(AssertionError, match=rf"{user.partition(':')[0] or 1000}\n(.|\n)*Read-only file system"):
            started_read_only(image, "python", "-c", look, user=user or "1000:1000")
        assert started_read_only(image, "trainwright", "--version", user=user or "1000:1000").strip() == __version__
    listed = json.loads(started(image, "cat", "/opt/code/sbom.cdx.json"))
    assert (listed["bomFormat"], listed["metadata"]["component"]["name"]) == ("CycloneDX", "trainwright")
    contained = {component["name"].lower().replace("_", "-") for component in listed["components"]}
    assert {"kubernetes", "pydantic"} <= contained
    config = configuration(image)
    assert config["User"] == "1000:1000"
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
    own = started(image, "python", "-c", "import trainwright; print(trainwright.__file__, trainwright.__cached__)").split()
    assert own[0] == "/opt/code/trainwright/__init__.py"
    started(image, "test", "-f", own[1])


@built
@pytest.mark.slow
def test_a_change_of_code_changes_the_last_layer_only(base: str, tmp_path: Path) -> None:
    before = layers(build("controller", base))
    changed = tmp_path / "changed"
    shutil.copytree(ROOT, changed, ignore=shutil.ignore_patterns(".venv", ".clients", ".git", "build", "runs", "tests"))
    (changed / "trainwright" / "new_module.py").write_text('"""New."""\n', "utf-8")
    after = layers(build("controller", base, changed))
    assert len(after) == len(before)
    assert [one == other for one, other in zip(before, after, strict=True)] == [True] * (len(before) - 1) + [False]
