"""The filter's decisions, by running its instructions; that the kernel takes them is tested with real runs."""

from __future__ import annotations

import errno
import struct

import pytest

from bridge.executor.sandbox import seccomp

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
EPERM = ERRNO | errno.EPERM


def decide(machine: str, number: int, *arguments: int, arch: int | None = None, **options: bool) -> int:
    """Run the program over one system call's data, as the kernel would."""
    code = seccomp.program(machine, **options)
    assert code is not None
    values = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *values)
    instructions = list(struct.iter_unpack("=HBBI", code))
    position = accumulator = 0
    while True:
        operation, if_true, if_false, value = instructions[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x06:
            return value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            position += if_true if holds else if_false


@pytest.mark.parametrize(
    ("machine", "numbers"),
    [
        (
            "x86_64",
            {"read": 0, "write": 1, "openat": 257, "execve": 59, "fork": 57, "mmap": 9, "futex": 202, "kill": 62},
        ),
        ("aarch64", {"read": 63, "write": 64, "openat": 56, "execve": 221, "mmap": 222, "futex": 98, "kill": 129}),
    ],
)
def test_what_a_program_needs_passes(machine, numbers):
    assert {decide(machine, number) for number in numbers.values()} == {ALLOW}


@pytest.mark.parametrize(
    ("machine", "numbers"),
    [
        (
            "x86_64",
            {"ptrace": 101, "mount": 165, "setns": 308, "bpf": 321, "keyctl": 250, "io_uring_setup": 425, "iopl": 172},
        ),
        ("aarch64", {"ptrace": 117, "mount": 40, "setns": 268, "bpf": 280, "keyctl": 219, "io_uring_setup": 425}),
    ],
)
def test_what_escapes_are_built_from_is_refused(machine, numbers):
    assert {decide(machine, number) for number in numbers.values()} == {EPERM}


@pytest.mark.parametrize(("machine", "clone", "unshare"), [("x86_64", 56, 272), ("aarch64", 220, 97)])
def test_threads_and_forks_pass_and_new_namespaces_do_not(machine, clone, unshare):
    thread = 0x3D0F00
    assert decide(machine, clone, thread) == ALLOW
    assert decide(machine, clone, 17) == ALLOW
    assert decide(machine, unshare, 0x400) == ALLOW
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(machine, clone, flag | 17) == EPERM
        assert decide(machine, unshare, flag) == EPERM
    assert decide(machine, 435) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize(
    ("machine", "call"), [("x86_64", 41), ("x86_64", 53), ("aarch64", 198), ("aarch64", 199)]
)  # socket, socketpair
def test_only_ordinary_socket_families_pass(machine, call):
    passing = [family for family in range(64) if decide(machine, call, family) == ALLOW]

    assert passing == [1, 2, 10, 16]


@pytest.mark.parametrize(
    ("machine", "shmget", "semget", "msgget"), [("x86_64", 29, 64, 68), ("aarch64", 194, 190, 186)]
)
def test_memory_that_stays_when_no_process_has_it_is_refused(machine, shmget, semget, msgget):
    assert decide(machine, shmget, 0, 1 << 30, 0o1600) == EPERM
    assert decide(machine, semget, 0, 32_000, 0o1600) == EPERM  # two MiB of the kernel for each of 32,000 sets
    assert decide(machine, msgget, 0, 0o1600) == EPERM


@pytest.mark.parametrize(("machine", "ioctl"), [("x86_64", 16), ("aarch64", 29)])
def test_pushing_characters_into_a_terminal_is_refused_and_other_requests_pass(machine, ioctl):
    assert decide(machine, ioctl, 0, 0x5412) == EPERM
    assert decide(machine, ioctl, 0, 0x541C) == EPERM
    assert decide(machine, ioctl, 0, 0x5413) == ALLOW


def test_another_calling_convention_is_refused():
    assert decide("x86_64", 0x40000000 + 101) == ERRNO | errno.ENOSYS
    assert decide("x86_64", 26, arch=0x40000003) == KILL


def test_an_architecture_without_a_table_gets_no_filter():
    assert seccomp.program("riscv64") is None
    assert seccomp.refused_calls("riscv64") == ()


@pytest.mark.parametrize(
    ("machine", "numbers"),
    [
        (
            "x86_64",
            {"socket": 41, "chmod": 90, "fchmod": 91, "chown": 92, "utimensat": 280, "pidfd_open": 434},
        ),
        ("aarch64", {"socket": 198, "fchmod": 52, "fchown": 55, "utimensat": 88, "mq_open": 180, "semop": 193}),
    ],
)
def test_alone_it_refuses_what_namespaces_would_hide(machine, numbers):
    assert {decide(machine, number, 1, alone=True) for number in numbers.values()} == {EPERM}
    assert {decide(machine, number, 1) for number in numbers.values()} == {ALLOW}


@pytest.mark.parametrize(
    ("machine", "limits", "priority", "affinity", "socketpair", "truncate"),
    [("x86_64", 302, 141, 203, 53, 76), ("aarch64", 261, 140, 122, 199, 45)],
)
def test_alone_a_program_has_its_own_limits_priority_and_pairs_and_cuts_files_where_that_is_judged(
    machine, limits, priority, affinity, socketpair, truncate
):
    for number, arguments in ((limits, ()), (affinity, ()), (priority, (0,))):
        assert decide(machine, number, *arguments, 0, alone=True) == ALLOW
        assert decide(machine, number, *arguments, 4711, alone=True) == EPERM
        assert decide(machine, number, *arguments, 4711) == ALLOW
    assert decide(machine, socketpair, 1, alone=True) == ALLOW
    assert decide(machine, truncate, alone=True) == ALLOW
    assert decide(machine, truncate, alone=True, truncate=False) == EPERM


@pytest.mark.parametrize(
    ("machine", "objects", "attributes"),
    [
        ("x86_64", {"shmat": 30, "shmctl": 31, "semop": 65, "semctl": 66, "msgrcv": 70, "msgctl": 71}, (191, 194)),
        ("aarch64", {"shmat": 196, "shmctl": 195, "semop": 193, "semctl": 191, "msgrcv": 188, "msgctl": 187}, (8, 11)),
    ],
)
def test_alone_objects_are_refused_by_number_and_files_have_no_attributes(machine, objects, attributes):
    assert {decide(machine, number, 1, alone=True) for number in objects.values()} == {EPERM}
    assert {decide(machine, number, alone=True) for number in attributes} == {ERRNO | errno.EOPNOTSUPP}
    assert {decide(machine, number, 1) for number in (*objects.values(), *attributes)} == {ALLOW}
