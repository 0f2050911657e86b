"""What a container tries in order to reach the host, and does not."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support.supervised_containers import Runs, is_running
from support.waiting import eventually

from trainwright.controlplane.node.isolation.plan import ContainerMount

pytestmark = pytest.mark.medium


def test_a_mount_target_that_is_a_link_stays_in_the_container(runs: Runs) -> None:
    outside = runs.make_folder("outside")
    volume = runs.make_folder("volume")
    (volume / "link").symlink_to(outside)
    (volume / "up").symlink_to("../../../../../../../.." + str(outside))
    inner = runs.make_folder("inner", {"f": "inner"})
    mounts = [ContainerMount("/v", volume), ContainerMount("/v/link/x", inner), ContainerMount("/v/up/y", inner)]
    run = runs.start("sh", "-c", f"cat /v/link/x/f {outside}/y/f", mounts=mounts)
    assert run.output() == "innerinner\n"
    assert list(outside.iterdir()) == []


def test_a_source_that_became_a_link_is_refused(runs: Runs) -> None:
    volume = runs.make_folder("volume")
    (volume / "sub").symlink_to("/etc")
    ended = runs.start("true", mounts=[ContainerMount("/v", volume / "sub")]).ended()
    assert (ended["code"], ended["reason"]) == (128, "StartError")
    assert ended["message"] == f"isolation: mount {volume}/sub at /v: Too many levels of symbolic links (open)"


def test_links_of_a_volume_are_followed_inside_of_it_only(runs: Runs) -> None:
    volume = runs.make_folder("volume", {"..v1/key": "value"})
    (volume / "..data").symlink_to("..v1")
    (volume / "up").symlink_to("..data/../../outside")
    runs.make_folder("outside", {"key": "secret", "passwd": "secret"})

    def mounted(path: str) -> ContainerMount:
        return ContainerMount("/k", volume / path, volume=volume)

    assert runs.start("cat", "/k", mounts=[mounted("..data/key")]).output() == "value\n"
    refused = "Invalid cross-device link (open)"
    for outside in ("/etc", str(runs.folder / "outside"), "..", "../outside"):
        (volume / "..data").unlink()
        (volume / "..data").symlink_to(outside)
        for path in ("..data/passwd", "..data", "up/key"):
            ended = runs.start("true", mounts=[mounted(path)]).ended()
            assert (ended["reason"], refused in ended["message"]) == ("StartError", True), (outside, path, ended)


SWAP = """
import os
os.chdir("/v")
open("ready", "w").close()
while True:
    os.rename("..data", "kept"); os.symlink("..", "..data")
    os.unlink("..data"); os.rename("kept", "..data")
"""


def test_volume_whose_folders_are_swapped_all_the_time_never_gives_its_parent(runs: Runs) -> None:
    """A subPath through `..data`, which another container of the pod replaces by a link to the parent in a loop."""
    volume = runs.make_folder("pod/volume", {"..data/name": "inside"})
    runs.make_folder("pod/name", {"secret": ""})
    runs.own(runs.folder / "pod")
    other = runs.start("/usr/bin/python3", "-I", "-c", SWAP, mounts=[ContainerMount("/v", volume)])
    other.state()
    eventually(lambda: (volume / "ready").exists(), what="the first swap")
    mount = ContainerMount("/k", volume / "..data" / "name", volume=volume)
    attempts = [runs.start("sh", "-c", "cat /k || ls /k", mounts=[mount]) for _ in range(20)]
    assert {run.output() for run in attempts} <= {"inside\n", ""}
    assert {run.ended().get("reason") for run in attempts} <= {None, "StartError"}


def test_hidden_folder_of_a_shared_one_stays_hidden_whatever_is_renamed(runs: Runs) -> None:
    """Neither is what contains it moved away, nor is there anything else in its place for the next container."""
    shared = runs.make_folder("shared", {"a/b/home/admin.token": "SECRET", "a/other/file": "o"})
    runs.own(shared)
    moves = (
        f"cd {shared}; for each in a a/b a/b/home; do mv $each c 2> /dev/null && echo moved; done; mv a/other a/free && echo free"
    )
    inside = {"shared": [shared], "hidden": [shared / "a/b/home"]}
    assert runs.start("sh", "-c", moves, **inside).output() == "free\n"
    assert runs.start("sh", "-c", f"cat $(find {shared} -type f)", **inside).output() == "o\n"
    assert (shared / "a/b/home/admin.token").read_text() == "SECRET"


@pytest.mark.parametrize(
    "path",
    ["/proc", "/usr/../proc/self/", "/proc/sys/user", "/sys", "/usr/../sys/fs/cgroup/", "/dev", "/dev/null", "/usr/../dev/x/"],
)
def test_no_volume_covers_the_kernels_files(runs: Runs, path: str) -> None:
    volume = runs.make_folder("volume", {"self/setgroups": "deny"})
    ended = runs.start("true", mounts=[ContainerMount(path, volume, volume=volume)]).ended()
    assert (ended["code"], ended["reason"]) == (128, "StartError")
    assert os.path.normpath(path) in ended["message"]


def test_no_volume_covers_the_kernels_files_through_a_link(runs: Runs) -> None:
    volume, fake = runs.make_folder("volume"), runs.make_folder("fake")
    (volume / "link").symlink_to("/proc")
    mounts = [ContainerMount("/v", volume, volume=volume), ContainerMount("/v/link/sys", fake, volume=fake)]
    ended = runs.start("true", mounts=mounts).ended()
    assert "Operation not permitted (no volume may cover /proc/sys)" in ended["message"]


def test_volume_has_no_programs_of_other_users_and_no_devices(runs: Runs) -> None:
    volume = runs.make_folder("volume", {"inner/f": ""})
    mounts = [ContainerMount("/v", volume, volume=volume), ContainerMount("/dev/shm", volume, volume=volume)]
    mounts.append(ContainerMount("/f", volume / "inner" / "f", volume=volume))
    options = "awk '$5 ~ /^.(v|dev.shm|f)$/ {print $5, ($6 ~ /nosuid/) + ($6 ~ /nodev/)}' /proc/self/mountinfo"
    printed = runs.start("sh", "-c", options, mounts=mounts).output().splitlines()
    assert sorted(printed) == ["/dev/shm 2", "/f 2", "/v 2"]


def test_device_that_a_pod_names_is_a_device(runs: Runs) -> None:
    zero = Path("/dev/zero")
    run = runs.start("sh", "-c", "head -c 3 /dev/mine | wc -c", mounts=[ContainerMount("/dev/mine", zero, volume=zero)])
    assert run.output() == "3\n"


@pytest.mark.parametrize("source", ["/proc", "/sys/fs", "/"])
def test_settings_of_the_machine_are_read_only_in_a_volume(runs: Runs, source: str) -> None:
    """As root, a container could otherwise write sysctls and the control groups of others."""
    mount = ContainerMount("/host", Path(source), volume=Path(source))
    script = "grep -E ' - (proc|sysfs|cgroup2?) ' /proc/self/mountinfo | grep ' /host' | grep -cv ' ro,'; ls /host"
    printed = runs.start("sh", "-c", script, mounts=[mount]).output().splitlines()
    assert printed[0] == "0"
    assert len(printed) > 1


ATTEMPTS = [
    "umount /data",
    "umount /proc",
    "mount -t tmpfs none /tmp",
    "mount -o remount,bind,rw /data",
    "unshare -m true",
    "chroot / umount /data",
    "unshare -Um sh -c 'umount /data'",
    "unshare -Urm sh -c 'mount -o remount,bind,rw /data && touch /data/x'",
    "unshare -Urm umount /usr/share",
    "unshare -U true",
    "unshare -C true",
    "unshare -UrmC true",
    "echo 100 > /proc/sys/user/max_user_namespaces",
    "mknod /tmp/disk b 8 0 && head -c 1 /tmp/disk",
    "kill -0 HOST_PID",
    "cat /proc/HOST_PID/environ",
    "hostname other",
]


def test_a_container_cannot(runs: Runs) -> None:
    data = runs.make_folder("data")
    tried = [
        f"if ({attempt.replace('HOST_PID', str(os.getpid()))}) > /dev/null 2>&1; then echo {number}; fi"
        for number, attempt in enumerate(ATTEMPTS)
    ]
    mounts = [ContainerMount("/data", data, read_only=True)]
    run = runs.start("sh", "-c", "\n".join([*tried, "echo end"]), mounts=mounts, hidden=[Path("/usr/share")])
    *succeeded, end = run.output().split()
    assert ([ATTEMPTS[int(number)] for number in succeeded], end) == ([], "end")
    assert list(data.iterdir()) == []


def test_commands_in_container_make_no_user_namespaces(runs: Runs) -> None:
    run = runs.start("sleep", "600")
    run.state()
    done = run.execute("unshare", "-Ur", "true")
    assert done.returncode != 0
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("group", ["runAsUser", "runAsGroup"])
def test_an_id_that_means_unchanged_is_not_taken_for_root(runs: Runs, group: str) -> None:
    run = runs.start("id", container={"securityContext": {group: 2**32 - 1}})
    ended = run.ended()
    assert (ended["code"], ended["reason"]) == (128, "StartError")
    assert ended["message"].startswith("isolation: ")
    assert "Invalid argument" in ended["message"]
    assert run.output() == ""


def test_an_id_beyond_the_mapped_range_ends_the_start(runs: Runs) -> None:
    run = runs.start("id", container={"securityContext": {"runAsUser": 2**33}})
    assert (run.ended()["code"], run.ended()["reason"]) == (128, "StartError")
    assert run.output() == ""


def test_no_file_of_the_supervisor_is_open_in_a_container(runs: Runs) -> None:
    assert runs.start("sh", "-c", "ls /proc/1/fd").output().split() == ["0", "1", "2"]


def test_killing_the_supervisor_leaves_no_process(runs: Runs) -> None:
    run = runs.start("sh", "-c", "(sleep 600 & sleep 600) & setsid sleep 600 & echo; wait")
    main = run.state()["pid"]
    inside = eventually(lambda: _all_of(main, 4), what="the processes of the container")
    run.process.kill()
    eventually(lambda: not any(map(is_running, inside)), what="the end of all processes")


def test_without_isolation_the_main_process_ends_with_its_supervisor(runs: Runs) -> None:
    run = runs.start("sh", "-c", "sleep 600; echo", isolated=False)
    main = run.state()["pid"]
    run.process.kill()
    eventually(lambda: not is_running(main), what="the end of the main process")


def test_the_end_of_the_main_process_ends_all(runs: Runs) -> None:
    run = runs.start(
        "sh",
        "-c",
        "(setsid sleep 600 &) ; read line < /proc/self/fd/0; while [ ! -e /go/on ]; do sleep 0.05; done; exit 3",
        mounts=[ContainerMount("/go", runs.make_folder("go"))],
    )
    inside = eventually(lambda: _all_of(run.state()["pid"], 2), what="the processes of the container")
    (runs.folder / "go" / "on").touch()
    assert run.ended()["code"] == 3
    assert not any(map(is_running, inside))


def test_a_main_process_without_a_handler_ignores_termination(runs: Runs) -> None:
    run = runs.start("sleep", "600")
    pid = run.state()["pid"]
    os.kill(pid, signal.SIGTERM)
    assert run.execute("true").returncode == 0
    assert is_running(pid)
    os.killpg(pid, signal.SIGKILL)
    assert (run.ended()["code"], run.ended()["signal"]) == (137, 9)


def test_the_writable_layer_is_removed(runs: Runs) -> None:
    run = runs.start("sh", "-c", "mkdir -p /root/a/b /etc/c; touch /root/a/b/f; chmod 0 /root/a/b /root/a")
    run.ended()
    assert not (run.folder / "layer").exists()


def test_privileges_can_be_given_up_for_good(runs: Runs) -> None:
    container = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}}
    printed = runs.start("grep", "-E", "NoNewPrivs|CapEff|CapBnd", "/proc/self/status", container=container).output().split()
    assert printed == ["CapEff:", "0000000000000001", "CapBnd:", "0000000000000001", "NoNewPrivs:", "1"]


def test_a_plan_that_cannot_be_carried_out_names_the_step(runs: Runs) -> None:
    ended = runs.start("true", mounts=[ContainerMount("/v", runs.folder / "missing")]).ended()
    assert ended["message"].startswith(f"isolation: mount {runs.folder}/missing at /v: No such file or directory")
    assert not list(runs.started[-1].folder.glob("state.json"))


def _all_of(pid: int, count: int) -> list[int]:
    """The processes in the namespace of `pid`, once there are at least `count`."""
    namespace = os.readlink(f"/proc/{pid}/ns/pid")
    done = subprocess.run(["ps", "-eo", "pid="], capture_output=True, text=True, check=True)
    found = [int(word) for word in done.stdout.split() if _namespace(word) == namespace]
    return found if len(found) >= count else []


def _namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
