"""What a container sees of itself and of the host, looked at from inside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.supervised_containers import PATH, Runs

from trainwright.controlplane.node.isolation import plan
from trainwright.controlplane.node.isolation.plan import ContainerMount
from trainwright.controlplane.node.isolation.visible import python_folders

pytestmark = pytest.mark.medium


def test_a_container_has_its_own_processes_user_host_name_and_umask(runs: Runs) -> None:
    script = "echo $$; echo /proc/[0-9]*; hostname; id -u; id -g; umask; pwd; ps -o comm= -p 1"
    printed = runs.start("sh", "-c", script).output().split()
    assert printed == ["1", "/proc/1", "web-0", "0", "0", "0022", "/", "sh"]


def test_a_container_runs_as_the_user_that_it_asks_for(runs: Runs) -> None:
    settings = {"securityContext": {"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "supplementalGroups": [4000]}}
    printed = runs.start(
        "sh", "-c", "id -u; id -g; id -G; grep CapEff /proc/self/status; echo out > /dev/stdout", pod=settings
    ).output()
    user, group, groups, capabilities, out = printed.splitlines()
    assert (user, group, capabilities.split()[1], out) == ("1000", "3000", "0000000000000000", "out")
    assert groups == ("3000 2000 4000" if runs.is_root else "3000")


def test_files_written_outside_volumes_stay_in_the_container(runs: Runs) -> None:
    folders = [Path(folder) for folder in ("/tmp", "/var/tmp", "/run", "/root", "/dev/shm", "/etc", "/usr", "/srv", "/new")]
    names = [f"{folder}/trainwright-test-{os.getpid()}" for folder in folders]
    before = [folder.stat().st_mtime_ns if folder.exists() else None for folder in folders]
    write = "".join(f"mkdir -p {folder} && echo one > {name} && cat {name};" for folder, name in zip(folders, names, strict=True))
    assert runs.start("sh", "-c", write).output() == "one\n" * len(folders)
    assert not any(Path(name).exists() for name in names)
    after = [folder.stat().st_mtime_ns if folder.exists() else None for folder in folders]
    shared = (Path("/tmp"), Path("/dev/shm"))  # others write there meanwhile
    assert [old for old, new, folder in zip(before, after, folders, strict=True) if old != new and folder not in shared] == []
    assert (
        runs.start("sh", "-c", f"ls -d {' '.join(names)} 2> /dev/null; ls -A /tmp /var/tmp /run /home /dev/shm | wc -w").output()
        == "5\n"
    )


def test_folders_that_a_runtime_masks_are_masked(runs: Runs) -> None:
    script = "ls /mnt /media /boot; echo b > /proc/sysrq-trigger; echo x > /proc/sys/kernel/core_pattern; touch /sys/kernel/x"
    run = runs.start("sh", "-c", script)
    assert run.ended()["code"] != 0
    assert run.output().count("No such file or directory") == 3
    assert len(run.output().splitlines()) == 6


def test_devices_are_the_harmless_ones(runs: Runs) -> None:
    script = (
        "cd /dev; ls -d console kmsg vda sda loop0 mem 2>/dev/null; echo a > null; head -c 3 zero | wc -c; head -c 3 urandom | wc -c;"
        " readlink fd stdin stdout stderr ptmx; stat -c %a pts/ptmx; df -B1 --output=size shm | tail -n 1;"
        " python3 -c 'import os; a, b = os.openpty(); print(os.ttyname(b))'"
    )
    printed = runs.start("sh", "-c", script, env={"PATH": "/usr/bin:/bin"}).output().split()
    assert printed == ["3", "3", "/proc/self/fd", "fd/0", "fd/1", "fd/2", "pts/ptmx", "666", str(64 * 1024 * 1024), "/dev/pts/0"]


def test_a_missing_working_directory_is_made(runs: Runs) -> None:
    run = runs.start("sh", "-c", "pwd; stat -c %a .; cd /usr/share/made/for/me && stat -c %a .", cwd="/made/for/me")
    assert run.output().split()[:2] == ["/made/for/me", "755"]
    assert runs.start("pwd", cwd="/usr/share/made/for/me").output() == "/usr/share/made/for/me\n"


def test_volumes_are_mounted_where_the_pod_wants_them(runs: Runs) -> None:
    work, settings = runs.make_folder("work"), runs.make_folder("settings", {"a": "A", "b/c": "C"})
    mounts = [
        ContainerMount("/workspace", work),
        ContainerMount("/etc/app/a", settings / "a", read_only=True),
        ContainerMount("/usr/share/x/y/z", settings, read_only=True),
        ContainerMount("/workspace/inner", settings / "b"),
        ContainerMount("/var/run/secrets/token", settings / "a"),
        ContainerMount("/dev/termination-log", runs.make_folder("message", {"m": ""}) / "m"),
        ContainerMount("/scratch", None, tmpfs_bytes=1024 * 1024),
    ]
    script = (
        "cat /etc/app/a /usr/share/x/y/z/b/c /workspace/inner/c /run/secrets/token; ls /etc/app; echo w > /workspace/f;"
        " echo last > /dev/termination-log; stat -f -c %T /scratch; df -B1 --output=size /scratch | tail -n 1; test -e /etc/passwd;"
        " ls /usr/share | wc -l"
    )
    run = runs.start("sh", "-c", script, mounts=mounts)
    *lines, count = run.output().split()
    assert lines == ["ACCAa", "tmpfs", str(1024 * 1024)]
    assert int(count) == len(os.listdir("/usr/share")) + 1
    assert (work / "f").read_text("utf-8") == "w\n"
    assert (work / "f").stat().st_mode & 0o777 == 0o644
    assert (runs.folder / "message" / "m").read_text("utf-8") == "last\n"
    assert not Path("/etc/app").exists()
    assert not Path("/usr/share/x").exists()


def test_a_read_only_mount_is_read_only_also_below(runs: Runs) -> None:
    data = runs.make_folder("data", {"f": "kept", "inner/g": "kept"})
    script = (
        "echo x > /data/f; echo x > /data/inner/g; rm /data/f; chmod 777 /data; umount /data; mount -o remount,rw /data; true"
    )
    run = runs.start("sh", "-c", script, mounts=[ContainerMount("/data", data, read_only=True)])
    assert run.output().count("Read-only file system") == 4
    assert (data / "f").read_text("utf-8") == "kept"


def test_a_read_only_root_leaves_volumes_writable(runs: Runs) -> None:
    container = {"securityContext": {"readOnlyRootFilesystem": True}}
    folders = "/ /tmp /etc /usr /root /run /var/tmp /made/folder"
    script = f"for f in {folders}; do touch $f/x && echo $f; done; touch /data/x /dev/shm/x && echo data"
    mounts = [ContainerMount("/data", runs.make_folder("data"))]
    run = runs.start("sh", "-c", script, container=container, mounts=mounts, cwd="/made/folder")
    printed = run.output().splitlines()
    assert [line for line in printed if "touch" not in line] == ["data"]
    assert sum("Read-only file system" in line for line in printed) == 8


def test_home_folders_are_hidden_but_the_python_environment_is_not(runs: Runs) -> None:
    project = runs.make_folder("home/user/project", {"module.py": "print('it runs')"})
    runs.make_folder("home/user/.ssh", {"key": "secret"})
    runs.own(runs.folder / "home")
    home = runs.folder / "home"
    run = runs.start(
        "sh",
        "-c",
        f"ls -A {home}/user; python3 {project}/module.py",
        hidden=[home / "user"],
        visible=[project],
        env={"PATH": "/usr/bin"},
    )
    assert run.output() == "project\nit runs\n"


def test_changes_to_an_environment_stay_in_the_container(runs: Runs) -> None:
    environment = runs.make_folder("home/env", {"lib/a.py": "host"})
    runs.own(runs.folder / "home")
    script = f"cd {environment}; echo new > lib/b.py; echo changed > lib/a.py; cat lib/*"
    assert runs.start("sh", "-c", script, visible=[environment], hidden=[environment.parent]).output() == "changed\nnew\n"
    assert (environment / "lib" / "a.py").read_text("utf-8") == "host"
    assert os.listdir(environment / "lib") == ["a.py"]


def test_a_hidden_folder_inside_a_visible_one_stays_hidden(runs: Runs) -> None:
    project = runs.make_folder("project", {"module.py": "", "cluster/key": "secret"})
    run = runs.start("ls", "-A", str(project), str(project / "cluster"), visible=[project], hidden=[project / "cluster"])
    assert run.output() == f"{project}:\ncluster\nmodule.py\n\n{project}/cluster:\n"


def test_a_hidden_folder_that_the_root_would_show_is_empty(runs: Runs) -> None:
    run = runs.start("sh", "-c", "ls -A /usr/share; touch /usr/share/x", hidden=[Path("/usr/share")])
    assert run.output() == "touch: cannot touch '/usr/share/x': Read-only file system\n"


def test_the_interpreter_of_the_node_runs_in_a_container(runs: Runs) -> None:
    if runs.user is not None and not os.access(sys.executable, os.X_OK):
        pytest.skip("the other user cannot see this Python")
    folders = [folder for folder in python_folders() if runs.user is None or _is_readable_by_all(folder)]
    if runs.user is not None and Path(sys.base_prefix) not in folders:
        pytest.skip("the other user may not read this Python's folder")
    code = "import json, pytest, trainwright.api.objects as o; print(o.__file__)"
    run = runs.start(sys.executable, "-c", code, visible=folders, hidden=[Path.home()], env={"PATH": PATH})
    assert run.output().strip().endswith("trainwright/api/objects.py")


def _is_readable_by_all(folder: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (folder, *folder.parents))


def test_a_container_may_have_so_many_processes_and_no_more(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PROCESS_LIMIT", 20)
    script = (
        "import os, resource, time; print(*resource.getrlimit(resource.RLIMIT_NPROC))\n"
        "for _ in range(40):\n    if os.fork() == 0: time.sleep(100)\n    print('started', flush=True)"
    )
    run = runs.start("python3", "-I", "-c", script, env={"PATH": "/usr/bin:/bin"})
    lines = run.output().splitlines()
    if runs.is_root:  # the kernel does not count root's
        assert [lines[0], lines.count("started")] == ["20 20", 40]
    else:
        assert lines[-1] == "BlockingIOError: [Errno 11] Resource temporarily unavailable"
        assert lines.count("started") < 20
        assert run.ended()["code"] == 1
    assert runs.start("bash", "-c", "sleep 100 & jobs -r | wc -l").output() == "1\n"
