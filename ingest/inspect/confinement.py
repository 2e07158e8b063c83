"""What the operating system denies to a process that runs other people's queries.

Memory and time by limits; on Linux also all files but the named ones (Landlock), and programs, sockets and other
processes (a filter of system calls). A kernel that lacks one of the last two leaves it out: DuckDB's own locked settings
then stand alone. See landlock(7), seccomp(2), setrlimit(2).
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_NO_NEW_PRIVS, _SECCOMP, _PARENT_DEATH = 38, 22, 1  # of prctl
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, on every machine
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_FILE_RIGHTS = {
    1: (1 << 13) - 1,
    2: (1 << 14) - 1,
    3: (1 << 15) - 1,
    5: (1 << 16) - 1,
}  # by Landlock's version
_PATH_BENEATH = 1
_DENIED = {  # system calls, with the number of the machine for the filter
    "x86_64": (0xC000003E, {
        "socket": 41, "connect": 42, "execve": 59, "execveat": 322, "ptrace": 101, "kill": 62,
        "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_send_signal": 424, "pidfd_getfd": 438,
        "io_uring_setup": 425, "bpf": 321, "open_by_handle_at": 304,
    }),
    "aarch64": (0xC00000B7, {
        "socket": 198, "connect": 203, "execve": 221, "execveat": 281, "ptrace": 117, "kill": 129,
        "process_vm_readv": 270, "process_vm_writev": 271, "pidfd_send_signal": 424, "pidfd_getfd": 438,
        "io_uring_setup": 425, "bpf": 280, "open_by_handle_at": 265,
    }),
}  # fmt: skip
_X32 = 0x40000000  # system calls from here on are the same ones by other numbers
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # instructions of the filter
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001  # the second is EPERM


def limit(seconds: float, memory: int) -> None:
    """Bound this process: it is killed after so many seconds, gets ``memory`` bytes more, and writes no file."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    cpu = math.ceil(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        _prctl(_PARENT_DEATH, signal.SIGKILL)


def shut_in() -> None:
    """Deny this process sockets, programs and other processes."""
    if sys.platform != "linux" or (machine := _DENIED.get(platform.machine())) is None:
        return
    _prctl(_NO_NEW_PRIVS, 1)
    kind, calls = machine
    numbers = sorted(calls.values())
    last = len(numbers) + 5  # of the two answers at the end: the place of the refusal
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 0, last - 2, kind), (_LOAD, 0, 0, 0), (_AT_LEAST, last - 4, 0, _X32)]
    steps += [(_EQUAL, last - place - 1, 0, number) for place, number in enumerate(numbers, start=len(steps))]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    _prctl(_SECCOMP, 2, ctypes.create_string_buffer(program))


def may_read_only(folders: Iterable[str]) -> None:
    """Deny this process every file that is not in one of the folders, and all writing."""
    version = _landlock_version()
    if version < 1:
        return
    rights = _FILE_RIGHTS[max(known for known in _FILE_RIGHTS if known <= version)]
    attributes = struct.pack("Q", rights)
    ruleset = _system(_CREATE_RULESET, ctypes.create_string_buffer(attributes), len(attributes), 0)
    if ruleset < 0:
        return
    for folder in folders:
        place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", _READ_FILE | _READ_FOLDER, place)
        _system(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.create_string_buffer(rule), 0)
        os.close(place)
    _prctl(_NO_NEW_PRIVS, 1)
    _system(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _landlock_version() -> int:
    return _system(_CREATE_RULESET, None, 0, 1) if sys.platform == "linux" else 0


def _prctl(what: int, *values: object) -> int:
    given = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    return int(ctypes.CDLL(None).prctl(what, *given, *[ctypes.c_ulong(0)] * (4 - len(given))))


def _system(number: int, *values: object) -> int:
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in values]
    return int(ctypes.CDLL(None).syscall(ctypes.c_long(number), *given))
