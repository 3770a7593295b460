"""Faults of the machine: a disk that loses power, a clock that is set, and a file system without locks.

python machine.py ERROR_NUMBER COMMAND...    # run a command whose file locks fail with this error
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

from bsc_core.jobs.local.processes import wait_until
from tests.helpers.waiting import PATIENCE_SECONDS

CLOCK = "BSC_STRESS_CLOCK"
NO_FILTER = 126  # exit status if this system cannot make locks fail
_DISK_BYTES = 8 * 2**30  # of a sparse file
_OPTIONS = "loop,noauto_da_alloc,data=writeback,commit=300"  # writes nothing to the disk that is not synced
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_DISCARD = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH
_LOCK_CALLS = {"x86_64": (73, 72), "aarch64": (32, 25)}  # numbers of flock and fcntl
_LOCK_COMMANDS = (6, 7, 37)  # F_SETLK, F_SETLKW, F_OFD_SETLK


class Disk:
    """An ext4 file system in a file, mounted at a folder."""

    def __init__(self, image: Path, folder: Path) -> None:
        """Create and mount it. Raises OSError or CalledProcessError without the rights of root on Linux."""
        self._image, self._folder = image, folder
        with image.open("xb") as file:
            file.truncate(_DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(image))
        folder.mkdir()
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", _OPTIONS, str(self._image), str(self._folder))

    def cut_power(self) -> None:
        """Discard what was not synced; every later access fails."""
        import fcntl

        handle = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _DISCARD))
        finally:
            os.close(handle)

    def restart(self) -> None:
        """Mount it again, once no process uses it."""
        self.unmount()
        self._mount()

    def unmount(self) -> None:
        def succeeds() -> bool:
            return subprocess.run(["umount", str(self._folder)], capture_output=True, check=False).returncode == 0

        if not wait_until(succeeds, PATIENCE_SECONDS):
            raise SystemExit(f"{self._folder} is in use")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def start_with_clock(file: Path) -> None:
    """Restart this program with a clock that all its processes share; `set_clock` sets it."""
    if CLOCK in os.environ:
        return
    paths = [str(Path(__file__).parent / "clock"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {CLOCK: str(file), "PYTHONPATH": os.pathsep.join(paths)}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def set_clock(seconds: float) -> None:
    """Set the clock ahead of the real one."""
    Path(os.environ[CLOCK]).write_text(str(seconds))


def without_locks(error_number: int, command: list[str]) -> list[str]:
    """Return a command that runs `command` with failing file locks; its exit status is NO_FILTER if it cannot."""
    return [sys.executable, __file__, str(error_number), *command]


def _forbid_locks(error_number: int) -> bool:
    """Let the kernel refuse locks to this process and its children. Returns whether that is possible."""
    if platform.machine() not in _LOCK_CALLS or sys.platform != "linux":
        return False
    flock, fcntl = _LOCK_CALLS[platform.machine()]
    load, equal, give = 0x20, 0x15, 0x06  # instructions of a filter, each with the jumps if true and false
    program = [
        (load, 0, 0, 0),  # number of the system call
        (equal, 6, 0, flock),
        (equal, 0, 4, fcntl),
        (load, 0, 0, 24),  # its second argument
        *((equal, 3 - number, 0, command) for number, command in enumerate(_LOCK_COMMANDS)),
        (give, 0, 0, 0x7FFF0000),  # allow
        (give, 0, 0, 0x00050000 | error_number),
    ]
    content = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(content)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer)))
    library = ctypes.CDLL(None, use_errno=True)
    is_restricted = library.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    return is_restricted and library.prctl(22, 2, header, 0, 0) == 0  # PR_SET_SECCOMP


if __name__ == "__main__":
    if not _forbid_locks(int(sys.argv[1])):
        raise SystemExit(NO_FILTER)
    os.execv(sys.argv[2], sys.argv[2:])
