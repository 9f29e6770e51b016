# SPDX-License-Identifier: Apache-2.0
"""What runs inside a guest: two small shell scripts and the job they are given.

The first is the initramfs' init: it loads the modules, mounts the host's root read-only and lays
out a root of its own (a tmpfs with the host's folders bound into it, so that every host path is the
same path in the guest).  The second runs the job on the guest's disk and powers off.  Both report
on the second serial port, one line each, `pagetier-lab: WORD ...`; the job's stderr goes there too.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pagetier.capacity.lab import initramfs
from pagetier.capacity.lab.kernels import Kernel

__all__ = ["DISK", "JOB", "PREFIX", "PROBE", "Job", "make_initramfs"]

PREFIX = "pagetier-lab: "
DISK = "/pagetier-lab"
JOB = "/run/pagetier-lab"
PROBE = "pagetier.probe"

_APPLETS = (
    *("sh", "mount", "umount", "mkdir", "insmod", "cat", "cp", "sleep", "poweroff", "sync"),
    *("switch_root", "readlink", "basename", "sed"),
)

_INIT = f"""#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
say() {{ echo "{PREFIX}$*" >/dev/ttyS1; }}
stop() {{ say "stopped $*"; poweroff -f; sleep 60; }}
case "$(cat /proc/cmdline)" in
*{PROBE}*) say up; poweroff -f ;;
esac
while read -r module; do
    insmod "/modules/$module" || stop "cannot load the module $module"
done </modules/order
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host ||
    stop "cannot mount the host's files"
mount -t tmpfs -o mode=755,size=64m guest /guest
for entry in /host/*; do
    name=$(basename "$entry")
    case "$name" in proc | sys | dev | run) continue ;; esac
    if [ -L "$entry" ]; then
        cp -P "$entry" /guest/
    elif [ -d "$entry" ]; then
        mkdir "/guest/$name"
        mount --bind "$entry" "/guest/$name"
    fi
done
mkdir -p /guest/proc /guest/sys /guest/dev /guest/run "/guest{DISK}"
for tries in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    for disk in /dev/vda /dev/nvme0n1; do
        [ -b "$disk" ] && break 2
    done
    sleep 0.5
done
mount -t ext4 "$disk" "/guest{DISK}" || stop "cannot mount the disk $disk"
mount -t tmpfs -o mode=755,size=64m run /guest/run
mkdir -p "/guest{JOB}"
cp -r /job/. /bin/busybox "/guest{JOB}/"
umount /host
mount --move /dev /guest/dev
mkdir -p /guest/dev/shm
mount -t tmpfs shm /guest/dev/shm
mount --move /proc /guest/proc
mount --move /sys /guest/sys
mount -t cgroup2 cgroup /guest/sys/fs/cgroup
mount -t debugfs debug /guest/sys/kernel/debug
exec switch_root /guest {JOB}/busybox sh {JOB}/stage2
"""

_STAGE2 = f"""b={JOB}/busybox
say() {{ echo "{PREFIX}$*" >/dev/ttyS1; }}
field() {{ $b sed -n "s/^$1: *\\([0-9]*\\) kB/\\1/p" /proc/meminfo; }}
available=$(field MemAvailable)
say "up $(field MemTotal) $available"
if [ -f {JOB}/available_kb ]; then
    read -r low high <{JOB}/available_kb
    if [ "$available" -lt "$low" ] || [ "$available" -gt "$high" ]; then
        say "gauge $available"
        $b umount {DISK}
        $b poweroff -f
        $b sleep 60
    fi
fi
ulimit -Hn 1048576
cd {DISK}
$b mkdir -p tmp
# For programs that do not ask TMPDIR.
[ ! -d /var/tmp ] || $b mount --bind tmp /var/tmp
# Through a pipe: a program that finds a terminal would draw on it.
$b mkfifo {JOB}/errors
$b cat {JOB}/errors >/dev/ttyS1 &
$b sh {JOB}/command </dev/null >{DISK}/stdout 2>{JOB}/errors
status=$?
wait
cd /
$b umount /var/tmp
$b sync
$b umount {DISK}
say "ended $status"
$b poweroff -f
$b sleep 60
"""


@dataclass(frozen=True, slots=True)
class Job:
    """What a guest is to do: one program with its environment, and files for it below JOB.

    `available_bytes` is the range MemAvailable must lie in before the program is started.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    available_bytes: tuple[int, int] | None = None


def make_initramfs(kernel: Kernel, busybox: Path, job: Job) -> bytes:
    """Init, busybox, modules and job in one archive."""
    modules = [initramfs.file(f"modules/{path.name}", path.read_bytes()) for path in kernel.modules]
    order = "".join(f"{path.name}\n" for path in kernel.modules).encode()
    mount_points = [initramfs.directory(name) for name in ("proc", "sys", "dev", "host", "guest")]
    return initramfs.archive(
        [
            *mount_points,
            # The kernel opens it for init before any file system is mounted.
            initramfs.node("dev/console", 5, 1),
            initramfs.executable("bin/busybox", busybox.read_bytes()),
            *(initramfs.link(f"bin/{name}", "busybox") for name in _APPLETS),
            initramfs.executable("init", _INIT.encode()),
            *modules,
            initramfs.file("modules/order", order),
            *_job_entries(job),
        ]
    )


def _job_entries(job: Job) -> list[initramfs.Entry]:
    assignments = [f"{name}={value}" for name, value in job.environment.items()]
    command = shlex.join(["exec", f"{JOB}/busybox", "env", "-i", *assignments, *job.argv])
    files = {"stage2": _STAGE2.encode(), "command": f"{command}\n".encode(), **job.files}
    if job.available_bytes is not None:
        low, high = job.available_bytes
        files["available_kb"] = b"%d %d\n" % (low // 1024, high // 1024)
    return [initramfs.file(f"job/{name}", content) for name, content in files.items()]
