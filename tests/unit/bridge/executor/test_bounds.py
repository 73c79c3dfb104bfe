from __future__ import annotations

import os
import signal

import pytest

from bridge.executor.command.bounds import Bounds, rlimits
from bridge.executor.command.disk_use import DiskUse, disk_use
from bridge.executor.processes.tree import Usage
from bridge.executor.removal import remove_tree
from bridge.limits import MIB
from bridge.records.jobspec import Limits
from tests.support.deep_folder import make_deep


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def steady_s(self) -> float:
        return self.at_s


def limits(**changes) -> Limits:
    fields = {
        "wall_s": 100.0,
        "inactivity_s": 10.0,
        "grace_s": 1.0,
        "memory_bytes": MIB,
        "processes": 4,
        "tasks": 8,
        "open_files": 16,
        "output_bytes": MIB,
        "log_bytes": 1024,
        "cpu_s": 5.0,
    }
    return Limits(**(fields | changes))


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def bounds(tmp_path, clock):
    return Bounds(limits(), tmp_path, clock)


def nobody_asks():
    return None


def calm(**changes) -> Usage:
    return Usage(**({"processes": 1, "rss_bytes": 0, "cpu_s": 0.0} | changes))


def test_a_run_within_its_bounds_goes_on(bounds):
    assert bounds.check(calm(processes=4, rss_bytes=MIB, cpu_s=5.0), nobody_asks) is None


@pytest.mark.parametrize(
    ("usage", "limit"),
    [
        (calm(processes=5), "processes"),
        (calm(tasks=9), "tasks"),
        (calm(rss_bytes=MIB + 1), "memory_bytes"),
        (calm(cpu_s=5.5), "cpu_s"),
    ],
)
def test_what_costs_the_host_is_killed_without_grace(bounds, usage, limit):
    stop = bounds.check(usage, nobody_asks)

    assert (stop.ending, stop.hit.limit, stop.hit.action, stop.graceful) == ("limit", limit, "killed", False)


@pytest.mark.parametrize(("after_s", "alive_at_s", "limit"), [(101.0, 100.0, "wall_s"), (11.0, 0.0, "inactivity_s")])
def test_time_bounds_give_a_grace_period(bounds, clock, after_s, alive_at_s, limit):
    clock.at_s += alive_at_s
    bounds.active()
    clock.at_s += after_s - alive_at_s
    stop = bounds.check(calm(), nobody_asks)

    assert (stop.ending, stop.hit.limit, stop.graceful) == ("timed_out", limit, True)
    assert stop.hit.observed > stop.hit.bound
    assert "s, at most 10s (" in stop.message or "s, at most 1m40s (" in stop.message


def test_processor_time_of_earlier_commands_counts(bounds):
    bounds.command_ended(4.0)

    assert bounds.check(calm(cpu_s=0.5), nobody_asks) is None
    assert bounds.check(calm(cpu_s=1.5), nobody_asks).hit.limit == "cpu_s"


def test_being_asked_to_stop_comes_before_everything_else(bounds):
    stop = bounds.check(calm(processes=99), lambda: "cancelled")

    assert (stop.ending, stop.hit, stop.graceful) == ("cancelled", None, True)


def test_what_was_there_before_does_not_count_as_output(tmp_path, clock):
    (tmp_path / "checkout").write_bytes(b"x" * 4 * MIB)
    bounds = Bounds(limits(), tmp_path, clock)
    assert bounds.disk() is None

    (tmp_path / "new").write_bytes(b"x" * 2 * MIB)
    assert bounds.disk().hit.limit == "output_bytes"


def test_the_disk_is_looked_at_seldom(bounds, clock, tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 2 * MIB)

    assert bounds.check(calm(), nobody_asks) is None
    clock.at_s += 0.6
    assert bounds.check(calm(), nobody_asks).hit.limit == "output_bytes"


def test_a_full_disk_ends_the_run(tmp_path, clock):
    bounds = Bounds(limits(), tmp_path, clock, free=lambda _: 1000)

    assert bounds.disk().hit.limit == "disk_free_bytes"


@pytest.fixture
def tight(tmp_path, clock):
    """Bounds of a run on a disk that filled up, and what is free there now."""
    free = [1 << 40]
    bounds = Bounds(limits(), tmp_path, clock, free=lambda _: free[0])
    free[0] = 1000
    return bounds, free


def test_a_disk_that_others_filled_stays_theirs_when_the_run_is_over(tight):
    bounds, _ = tight
    stop = bounds.disk()
    assert (stop.ending, "others of this host took most of it" in stop.message) == ("killed", True)
    assert bounds.disk(stop) == stop


def test_room_that_comes_back_with_a_runs_end_was_the_runs(tight):
    """Files without a name are in no folder, and go with the last process that has them open."""
    bounds, free = tight
    stop = bounds.disk()
    free[0] = 1 << 40
    own = bounds.disk(stop)
    assert (own.ending, own.hit) == ("limit", stop.hit)
    assert "others" not in own.message


def test_what_a_run_hid_in_a_folder_that_it_closed_is_counted_at_its_end(tmp_path, clock):
    bounds = Bounds(limits(), tmp_path, clock)
    for name, mode in (("unlisted", 0o300), ("unentered", 0o400)):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "big").write_bytes(b"x" * MIB)
        (tmp_path / name).chmod(mode)
    assert bounds.disk().hit.limit == "output_bytes"


def test_another_reason_for_the_end_of_a_run_stays(tight, bounds):
    full, _ = tight
    stop = bounds.check(calm(processes=5), nobody_asks)
    assert full.disk(stop) is stop


@pytest.mark.parametrize(
    ("number", "peak", "kernel", "limit"),
    [
        (signal.SIGXCPU, 0, {}, "cpu_s"),
        (signal.SIGXFSZ, 0, {}, "output_bytes"),
        (signal.SIGKILL, 0, {"memory": 1}, "memory_bytes"),
        (None, MIB + 1, {}, "memory_bytes"),
        (None, 0, {"tasks": 3}, "tasks"),
    ],
)
def test_an_ending_by_the_kernel_is_explained_by_its_bound(bounds, number, peak, kernel, limit):
    assert bounds.explain(number, peak, kernel).hit.limit == limit


def test_an_ordinary_failure_is_not_explained_away(bounds):
    assert bounds.explain(signal.SIGSEGV, MIB, {"memory": 0, "tasks": 0}) is None


def test_kernel_bounds_stand_behind_the_sampled_ones():
    kernel_limits = rlimits(limits(), os.getuid())

    assert kernel_limits["RLIMIT_CORE"] == 1
    assert kernel_limits["RLIMIT_NOFILE"] == 16
    assert kernel_limits.get("RLIMIT_DATA", MIB + 1) > MIB
    assert kernel_limits["RLIMIT_FSIZE"] > MIB
    assert kernel_limits["RLIMIT_CPU"] > 5
    assert "RLIMIT_CPU" not in rlimits(limits(cpu_s=None), os.getuid())


def test_counting_files_stops_when_there_are_too_many(tmp_path):
    for index in range(30):
        (tmp_path / str(index)).touch()

    assert disk_use(tmp_path, stop_at_files=10) == DiskUse(11, 0, complete=False)
    assert disk_use(tmp_path, stop_at_files=1000).files == 30


def test_files_made_between_the_count_and_the_look_at_their_sizes_end_both(tmp_path):
    for folder, files in (("before", 5), ("after", 30)):
        (tmp_path / folder).mkdir()
        for index in range(files):
            (tmp_path / folder / str(index)).touch()

    class Filling:
        """A directory that has more files at each look."""

        looks = iter(("before", "after"))

        def __fspath__(self) -> str:
            return str(tmp_path / next(self.looks))

    assert disk_use(Filling(), stop_at_files=10) == DiskUse(11, 0, complete=False)


def test_folders_too_deep_to_be_looked_into_end_a_run(tmp_path, clock):
    bounds = Bounds(limits(), tmp_path, clock)
    make_deep(tmp_path)
    stop = bounds.disk()
    assert (stop.ending, stop.hit.limit, stop.graceful) == ("limit", "path_bytes", False)
    assert stop.hit.observed >= stop.hit.bound > 1000
    assert remove_tree(tmp_path)


def test_a_file_that_no_path_reaches_is_not_counted_as_empty(tmp_path):
    folder, length = os.open(tmp_path, os.O_RDONLY), len(os.fsencode(tmp_path))
    while length < os.pathconf(tmp_path, "PC_PATH_MAX") - 300:
        os.mkdir("d" * 100, dir_fd=folder)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder, length = inner, length + 101
    for _ in range(2):
        os.mkdir("e" * 90, dir_fd=folder)
        inner = os.open("e" * 90, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    file = os.open("f" * 240, os.O_CREAT | os.O_WRONLY, dir_fd=folder)
    os.write(file, b"x" * 65536)
    os.close(file)
    os.close(folder)
    use = disk_use(tmp_path, stop_at_files=1000)
    assert (use.complete, use.path_bytes > os.pathconf(tmp_path, "PC_PATH_MAX") - 1) == (False, True)
    assert remove_tree(tmp_path)


def test_counting_follows_no_link_and_counts_what_a_sparse_file_occupies(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(64 * MIB)

    use = disk_use(tmp_path, stop_at_files=100)

    assert use.files == 2
    assert use.bytes < MIB


@pytest.mark.parametrize(("rate", "bound"), [(100, 300), (1000, 600)])  # the second is near its bound at the first look
def test_a_run_that_fills_its_directories_is_looked_at_when_it_will_have_however_long_a_look_takes(
    tmp_path, clock, rate, bound
):
    """Looks that take 0.4 s are 4 s apart for a calm run; one that adds files is looked at without a pause."""
    looks: list[float] = []

    def slow_look(_path):
        looks.append(clock.at_s)
        clock.at_s += 0.4
        return 1 << 40

    bounds = Bounds(limits(output_files=bound, inactivity_s=99.0, output_bytes=1 << 30), tmp_path, clock, slow_look)
    made, stop = 0, None
    while stop is None and made < 2000:
        clock.at_s += 0.1
        while made < rate * (clock.at_s - 1000.0):
            (tmp_path / str(made)).touch()
            made += 1
        stop = bounds.check(calm(), nobody_asks)

    assert stop is not None
    assert stop.hit.limit == "output_files"
    assert made - bound <= rate * 0.6
    calm_bounds = Bounds(limits(inactivity_s=99.0), tmp_path, clock, slow_look)
    looks.clear()
    for _ in range(60):
        clock.at_s += 0.1
        calm_bounds.check(calm(), nobody_asks)
    assert len(looks) == 2


def test_a_machine_that_slept_is_no_idle_program_and_the_deadline_says_how_long(tmp_path, clock):
    asleep = [500.0]
    awake = Bounds(limits(wall_s=20_000.0), tmp_path, clock, asleep_s=lambda: asleep[0])
    due = Bounds(limits(), tmp_path, clock, asleep_s=lambda: asleep[0])
    clock.at_s += 10_805.0
    asleep[0] += 10_800.0
    assert awake.check(calm(), nobody_asks) is None
    late = due.check(calm(), nobody_asks)
    assert (late.ending, late.hit.limit) == ("timed_out", "wall_s")
    assert late.message.endswith("3h, at most 1m40s (limits.wall_s); the machine slept for 3h of it")
    clock.at_s += 6.0
    idle = awake.check(calm(), nobody_asks)
    assert (idle.hit.limit, idle.hit.observed) == ("inactivity_s", 11.0)
