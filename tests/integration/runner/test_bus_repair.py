"""The remote loses objects: one command names what is damaged, and mends what this host has of it."""

from __future__ import annotations

import subprocess
import zlib

import pytest

LINE = "missing necessary objects"


def git(s, *words) -> str:
    done = subprocess.run(["git", "-C", s.folder / "bus.git", *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def lose(s, oid: str) -> None:
    (s.folder / "bus.git" / "objects" / oid[:2] / oid[2:]).unlink()


@pytest.fixture
def served(site):
    """Return a site whose runner has ended one run, and the run's request."""
    s = site()
    s.create_bus()
    ref = s.ask()
    s.run("once", "--bus", s.route)
    assert s.claim(ref).state == "terminal"
    return s, ref


@pytest.mark.parametrize("kind", ["claim", "log"])
def test_a_lost_object_of_this_runner_is_shown_first_and_pushed_again(served, kind):
    s, ref = served
    name = f"refs/kakeya/{kind}/{ref.id}"
    lose(s, oid := git(s, "rev-parse", name))
    push = subprocess.run(
        ["git", "-C", s.folder / "bus.git", "push", "-q", s.route, "refs/kakeya/bus:refs/heads/x"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert LINE in push.stderr
    shown = s.run("bus", "repair", "--bus", s.route)
    assert (shown.code, shown.stdout.split(": ")[0]) == (1, f"damaged {name}")
    assert "kakeya-runner bus repair --yes" in shown.stderr
    assert git(s, "rev-parse", name) == oid  # nothing was done
    mended = s.run("bus", "repair", "--yes", "--bus", s.route)
    assert (mended.code, mended.stdout.strip()) == (0, f"restored {name}")
    assert git(s, "cat-file", "-t", git(s, "rev-parse", name)) == "commit"
    assert "nothing is damaged" in s.run("bus", "repair", "--bus", s.route).stderr
    later = s.ask()
    s.run("once", "--bus", s.route)
    assert s.claim(later).state == "terminal"


@pytest.mark.ci
def test_two_lost_objects_are_both_pushed_again_although_one_alone_keeps_out_every_push(served):
    s, ref = served
    names = [f"refs/kakeya/{kind}/{ref.id}" for kind in ("claim", "log")]
    for name in names:
        lose(s, git(s, "rev-parse", name))
    mended = s.run("bus", "repair", "--yes", "--bus", s.route)
    assert (mended.code, mended.stdout.split("\n")) == (0, [*(f"restored {name}" for name in names), ""])


@pytest.mark.ci
def test_a_request_branch_with_a_result_is_made_again_from_the_runs_end(served):
    """The runner keeps nothing of a result once it is delivered; without this, losing the claim later loses the run."""
    s, ref = served
    lose(s, oid := git(s, "rev-parse", ref.ref))
    mended = s.run("bus", "repair", "--yes", "--bus", s.route)
    assert (mended.code, mended.stdout.strip()) == (0, f"restored {ref.ref} with the run's result")
    assert git(s, "rev-parse", ref.ref) == oid  # the same bytes
    assert git(s, "cat-file", "-t", f"{ref.ref}:.mac-bridge/result/run.json") == "blob"


@pytest.mark.ci
def test_a_request_branch_whose_request_is_lost_too_leaves_the_result_at_the_runs_claim(served):
    s, ref = served
    for oid in (git(s, "rev-parse", ref.ref), ref.oid):
        lose(s, oid)
    mended = s.run("bus", "repair", "--yes", "--bus", s.route)
    why = "the run has ended, and its result is there without it; next: kakeya-mac fetch"
    assert (mended.code, mended.stdout.strip()) == (0, f"deleted {ref.ref}: {why} {ref.id}")


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["claim", "start"])
def test_what_an_ended_run_can_do_without_sends_nobody_to_run_it_again(served, kind):
    s, ref = served
    lose(s, git(s, "rev-parse", f"refs/kakeya/{kind}/{ref.id}"))
    mended = s.run("bus", "repair", "--yes", "--bus", s.route, name="other")  # a host that never had it
    lost = ["claim"] if kind == "claim" else ["claim", "start"]  # a claim's history leads over its start
    assert (mended.code, mended.stdout.splitlines()) == (
        0, [f"deleted refs/kakeya/{each}/{ref.id}: the run has ended, and its result is on {ref.ref}" for each in lost]
    )  # fmt: skip


@pytest.mark.ci
def test_a_claim_that_lost_only_a_commit_of_its_history_is_whole_again(served):
    s, ref = served
    lose(s, git(s, "rev-parse", f"refs/kakeya/start/{ref.id}"))
    mended = s.run("bus", "repair", "--yes", "--bus", s.route)
    assert mended.stdout.splitlines() == [f"restored refs/kakeya/{kind}/{ref.id}" for kind in ("claim", "start")]
    assert s.ended(ref).reason == "gate_rejected"


@pytest.mark.ci
def test_the_end_of_another_living_runner_s_run_is_pushed_again_as_nobody_else_does_it(site):
    s = site()
    for name in ("mini", "other"):
        assert s.run("keygen", name=name).code == 0
    s.run("once", "--bus", s.route, "--create-bus")
    ref = s.ask()
    s.run("once", "--bus", s.route)
    claim = f"refs/kakeya/claim/{ref.id}"
    s.run("bus", "repair", "--bus", s.route, name="other")
    [head] = (s.folder / "state-other").rglob("HEAD")
    fetch = ["git", "-C", head.parent, "fetch", "-q", s.route, claim]  # as a runner that watches the lease does
    subprocess.run(fetch, check=True)
    lose(s, git(s, "rev-parse", claim))
    mended = s.run("bus", "repair", "--yes", "--bus", s.route, name="other")
    assert (mended.code, mended.stdout.strip()) == (0, f"restored {claim}")


def test_a_request_that_nobody_has_is_named_and_the_bus_goes_on(site):
    s = site()
    s.create_bus()
    ref = s.ask()
    lose(s, git(s, "rev-parse", ref.ref))
    mended = s.run("bus", "repair", "--yes", "--bus", s.route)
    assert (mended.code, mended.stdout.strip()) == (
        1, f"deleted {ref.ref}: nobody here has it; next: kakeya-mac retry {ref.id}"
    )  # fmt: skip
    later = s.ask()
    s.run("once", "--bus", s.route)
    assert s.claim(later).state == "terminal"


@pytest.mark.ci
def test_of_an_object_with_a_flipped_bit_the_file_is_named_that_somebody_removes_there(served):
    s, ref = served
    name = f"refs/kakeya/claim/{ref.id}"
    oid = git(s, "rev-parse", name)
    file = s.folder / "bus.git" / "objects" / oid[:2] / oid[2:]
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    mended = s.run("bus", "repair", "--yes", "--bus", s.route)
    assert mended.code == 1
    assert f"remove objects/{oid[:2]}/{oid[2:]} in that repository" in mended.stdout
    file.unlink()  # which a person may do, and no push
    assert s.run("bus", "repair", "--yes", "--bus", s.route).stdout.strip() == f"restored {name}"
    later = s.ask()
    s.run("once", "--bus", s.route)
    assert s.claim(later).state == "terminal"


@pytest.mark.ci
def test_where_an_object_without_a_type_keeps_the_remote_from_listing_anything_the_refusal_says_what_finds_it(served):
    s, ref = served
    name = f"refs/kakeya/claim/{ref.id}"
    oid = git(s, "rev-parse", name)
    file = s.folder / "bus.git" / "objects" / oid[:2] / oid[2:]
    file.chmod(0o644)
    file.write_bytes(zlib.compress(b"c" + zlib.decompress(file.read_bytes())))
    refused = s.run("bus", "repair", "--yes", "--bus", s.route)
    assert (refused.code, "git fsck in that repository names the damaged object" in refused.stderr) == (3, True)
    fsck = subprocess.run(["git", "-C", s.folder / "bus.git", "fsck"], capture_output=True, text=True, check=False)
    assert f"objects/{oid[:2]}/{oid[2:]}" in fsck.stderr
    file.unlink()
    assert s.run("bus", "repair", "--yes", "--bus", s.route).stdout.strip() == f"restored {name}"


def test_a_push_that_the_remote_refuses_for_a_lost_object_names_the_command(served):
    s, ref = served
    lose(s, git(s, "rev-parse", f"refs/kakeya/log/{ref.id}"))
    s.start("serve", "--bus", s.route)
    s.until(lambda: "kakeya-runner bus repair" in (s.folder / "mini.log").read_text(), "never named")


@pytest.mark.parametrize("is_damaged", [True, pytest.param(False, marks=pytest.mark.ci)])
def test_a_ref_that_the_remote_does_not_let_be_deleted_is_named_with_its_words(served, is_damaged):
    s, ref = served
    name = f"refs/kakeya/log/{ref.id}"
    if is_damaged:
        lose(s, git(s, "rev-parse", name))
    else:
        git(s, "update-ref", name := "refs/kakeya/log/odd", git(s, "rev-parse", "refs/kakeya/bus"))
    hook = s.folder / "bus.git" / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\n[ "$3" != 0000000000000000000000000000000000000000 ] || { echo rule 7 >&2; exit 1; }\n')
    hook.chmod(0o755)
    mended = s.run("bus", "repair", "--yes", "--bus", s.route)
    assert (mended.code, mended.stdout.split(": ")[0]) == (3, f"left {name}"), mended
    assert "the remote refuses that: hook declined; rule 7" in mended.stdout
    hook.unlink()
    assert s.run("bus", "repair", "--yes", "--bus", s.route).code == 0


@pytest.mark.ci
def test_what_can_only_be_pushed_again_once_a_file_is_removed_is_not_deleted_before(served):
    s, ref = served
    claim, start = (f"refs/kakeya/{kind}/{ref.id}" for kind in ("claim", "start"))
    before, oid = git(s, "rev-parse", claim), git(s, "rev-parse", start)
    file = s.folder / "bus.git" / "objects" / oid[:2] / oid[2:]
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    first = s.run("bus", "repair", "--yes", "--bus", s.route)
    assert (first.code, git(s, "rev-parse", claim)) == (1, before), first
    file.unlink()
    s.run("bus", "repair", "--yes", "--bus", s.route)
    assert (git(s, "rev-parse", claim), git(s, "rev-parse", start)) == (before, oid)
