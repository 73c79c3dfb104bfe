"""What a Mac would let a run do, by a model of its kernel's rules; on a Mac itself nothing of this was ever run.

The table's answers were written from the public reports that it names, not from the model. `golden/seatbelt-before.sb`
is the profile as it was before those reports were followed: the first rows fail under it, as the reports say.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.executor.sandbox import seatbelt
from tests.support.seatbelt_kernel import Profile, Subject, Volume

BEFORE = Path(__file__).with_name("golden") / "seatbelt-before.sb"
CELLAR = "/opt/homebrew/Cellar"
FRAMEWORK = f"{CELLAR}/python@3.13/3.13.5/Frameworks/Python.framework/Versions/3.13"
MODELS = "/Users/owner/models"
RUN = "/private/var/kakeya/runs/7"
MAC = Volume(
    frozenset(
        {
            f"{FRAMEWORK}/bin/python3.13",
            f"{CELLAR}/openssl@3/3.5.0/lib/libssl.3.dylib",
            f"{MODELS}/tiny/model.safetensors",
            f"{MODELS}/.netrc",
            "/Users/owner/.ssh/id_ed25519",
            "/Users/owner/Documents/letter.txt",
            "/private/var/kakeya/state/runner.key",
            "/private/var/kakeya/runs/6/out/report.json",
            f"{RUN}/work/main.py",
            f"{RUN}/home/.cache",
            f"{RUN}/profile.sb",
            "/private/var/run/docker.sock",
            "/private/etc/hosts",
            "/System/Library/Frameworks/Metal.framework/Metal",
            "/System/Volumes/Preboot/Cryptexes/OS/System/Library/dyld/dyld_shared_cache_arm64e",
            "/usr/lib/libSystem.B.dylib",
            "/usr/bin/git",
            "/bin/sh",
            "/Library/Developer/CommandLineTools/usr/bin/clang",
            "/dev/null",
            "/dev/disk0",
            "/dev/fd/2",
            "/dev/fd/11",
        }
    ),
    {
        "/usr/local/kakeya/bin/python": "/opt/homebrew/opt/python@3.13/bin/python3.13",
        "/opt/homebrew/opt/python@3.13": "../Cellar/python@3.13/3.13.5",
        f"{CELLAR}/python@3.13/3.13.5/bin": "Frameworks/Python.framework/Versions/3.13/bin",
        "/opt/homebrew/opt/openssl@3": "../Cellar/openssl@3/3.5.0",
        "/var": "private/var",
        "/System/Cryptexes/OS": "../Volumes/Preboot/Cryptexes/OS",
        "/dev/stderr": "fd/2",
        f"{RUN}/work/link": "/Users/owner/.ssh/id_ed25519",
    },
)
LIBRARY = "/opt/homebrew/opt/openssl@3/lib/libssl.3.dylib"
SECOND_NAME = "/System/Volumes/Data/Users/owner/.ssh/id_ed25519"
# operation, path, before, now, who reported it
FILES = [
    ("file-read-data", "/", False, True, "mise 12263, ai-jail 77: dyld reads the root and aborts without it"),
    ("file-test-existence", "/", False, True, "ai-jail 77"),
    ("file-read-data", "/usr/local/kakeya/bin/python", False, True, "omnigent 2049: uv's link between is asked"),
    ("process-exec", "/usr/local/kakeya/bin/python", False, True, "nono 1771: a chain of more than one link"),
    ("file-read-data", LIBRARY, False, True, "Homebrew's Python loads OpenSSL from its own formula"),
    ("process-exec", "/usr/bin/git", False, True, "code of a request runs git, a shell and a compiler"),
    ("process-exec", "/bin/sh", False, True, "code of a request"),
    ("process-exec", "/Library/Developer/CommandLineTools/usr/bin/clang", False, True, "/usr/bin/cc is a stub for it"),
    ("file-read-data", SECOND_NAME, True, False, "apple/firmlinks: every home has a second name below the data volume"),
    ("file-read-data", "/System/Volumes/Data/Users/owner/Documents/letter.txt", True, False, "the same"),
    ("file-read-data", "/System/Volumes/Data/private/var/kakeya/state/runner.key", True, False, "the same"),
    ("file-read-data", "/System/Cryptexes/OS/System/Library/dyld/dyld_shared_cache_arm64e", True, True, "dyld"),
    ("file-map-executable", "/System/Library/Frameworks/Metal.framework/Metal", True, True, "Metal"),
    ("file-map-executable", "/usr/lib/libSystem.B.dylib", True, True, "every program"),
    ("file-read-data", f"{MODELS}/tiny/model.safetensors", True, True, "a model folder of the policy"),
    ("file-read-data", "/users/OWNER/Models/Tiny/model.safetensors", True, True, "APFS ignores case, rules do not"),
    ("file-write-data", f"{RUN}/work/main.py", True, True, "its own folder"),
    ("process-exec", f"{RUN}/work/main.py", False, True, "a program that it built, as on Linux"),
    ("file-write-unlink", f"{RUN}/home/.cache", True, True, "what lies in its own folder"),
    ("file-write-unlink", f"{RUN}/home", True, False, "a link in its place would lead the supervisor elsewhere"),
    ("file-write-create", f"{RUN}/home", True, False, "the same"),
    ("file-write-data", "/dev/null", True, True, "a device"),
    ("file-read-data", "/dev/disk0", False, False, "a device that holds the owner's files"),
    ("file-read-data", "/dev/fd/11", False, True, "sandboxtron 1: a shell's <(command) is read by this name"),
    ("file-write-data", "/dev/stderr", False, True, "the same: a script's own message"),
    ("file-write-data", f"{MODELS}/tiny/model.safetensors", False, False, "readable only"),
    ("file-read-data", f"{MODELS}/.netrc", False, False, "a credential below an allowed folder"),
    ("file-read-data", "/Users/owner/.ssh/id_ed25519", False, False, "the owner's home"),
    ("file-read-data", f"{RUN}/work/link", False, False, "a link of its own leads nowhere else"),
    ("file-read-data", "/private/var/kakeya/state/runner.key", False, False, "the runner's key"),
    ("file-read-data", "/var/kakeya/runs/6/out/report.json", False, False, "another run"),
    ("file-write-data", f"{RUN}/profile.sb", False, False, "its own profile"),
    ("file-map-executable", f"{CELLAR}/openssl@3/3.5.0/lib/libssl.3.dylib", True, True, "open unless named"),
    ("file-map-executable", "/private/var/kakeya/runs/6/out/report.json", True, False, "Apple's profiles name it"),
    ("network-outbound", "/private/var/run/docker.sock", False, False, "a socket with a path"),
]
# operation, name, before, now, who reported it
NAMES = [
    ("ipc-posix-shm-write-create", "/__KMP_REGISTERED_LIB_4711", False, True, "Codex: libomp, OMP Error 179"),
    ("ipc-posix-sem-open", "/mp-k2x9w_ab", False, True, "CPython: a lock of multiprocessing"),
    ("ipc-posix-shm-read-data", "/psm_3f2a9c1d", True, True, "CPython: shared_memory"),
    ("ipc-posix-shm-read-data", "apple.shm.notification_center", False, False, "the system's own"),
    ("sysctl-read", "kern.procargs2.417", True, False, "its name holds the process: a rule for kern.procargs2 misses"),
    ("sysctl-read", "kern.proc.all", True, False, "lists every process"),
    ("sysctl-read", "hw.pagesize_compat", True, True, "the allocator of llama.cpp asks for 2^44 MiB without it"),
    ("iokit-open-user-client", "AGXDeviceUserClient", True, True, "agenc-core 1488, nono 635: the least Metal needs"),
    ("iokit-open-user-client", "IOSurfaceRootUserClient", True, False, "nono 635: not needed"),
    ("mach-lookup", "com.apple.MTLCompilerService", True, True, "agenc-core 1488"),
    ("mach-lookup", "com.apple.securityd.xpc", False, False, "the keychain"),
    ("nvram-get", "boot-args", True, False, "Chromium 799149: open unless a rule names it"),
    ("network-outbound", "localhost:22", False, False, "no network"),
]


def current():
    links = [node for node in MAC.links if not node.startswith(RUN)]
    readable = ["/usr/local/kakeya", FRAMEWORK, MODELS, *seatbelt.shared_folders(tools=True)]
    writable = [f"{RUN}/{name}" for name in ("work", "out", "home", "tmp")]
    return Profile(seatbelt.profile(readable, writable, network=False, masked=[f"{MODELS}/.netrc"], links=links))


@pytest.mark.parametrize(("operation", "path", "before", "now", "report"), FILES)
def test_a_mac_would_open_the_files_that_reports_name_and_no_others(operation, path, before, now, report):
    assert MAC.permits(Profile(BEFORE.read_text()), operation, path) is before, report
    assert MAC.permits(current(), operation, path) is now, report


@pytest.mark.parametrize(("operation", "name", "before", "now", "report"), NAMES)
def test_a_mac_would_open_the_names_that_reports_name_and_no_others(operation, name, before, now, report):
    assert Profile(BEFORE.read_text()).permits(operation, Subject(name=name)) is before, report
    assert current().permits(operation, Subject(name=name)) is now, report


def test_a_process_may_ask_and_signal_those_of_its_own_sandbox_alone():
    for operation in ("signal", "process-info-pidinfo"):
        assert current().permits(operation, Subject(target="same-sandbox"))
        assert not current().permits(operation, Subject(target="others"))
    assert Profile(BEFORE.read_text()).permits("process-info-pidinfo", Subject(target="others")), "Chromium 799149"


# The model itself, put to what the reports say of profiles that are not ours.
REPORTED = [
    ('(allow file-read* (subpath "/usr"))', "file-read-data", "/", False, "ai-jail 77: r.sb aborts"),
    ('(allow file-read* (literal "/"))', "file-read-data", "/", True, "ai-jail 77: r2.sb exits 0"),
    ('(allow file-read* (literal "/"))', "file-read-data", "/usr/lib", False, "a literal is no subpath"),
    ('(allow file-read* (subpath "/usr/lib"))', "file-read-data", "/usr/libexec", False, "by whole names"),
    (
        '(allow file-read* (subpath "/a")) (deny file-read* (subpath "/a/b")) (allow file-read* (literal "/a/b/c"))',
        *("file-read-data", "/a/b/c", True, "the last rule that matches counts"),
    ),
    (
        '(deny file-read* (subpath "/a/b")) (allow file-read* (subpath "/a"))',
        "file-read-data",
        "/a/b",
        True,
        "the last",
    ),
    ('(allow file-read-metadata (literal "/a"))', "file-read-data", "/a", False, "metadata is not content"),
    ('(allow file-read* (require-not (subpath "/a")))', "file-read-data", "/a/b", False, "require-not"),
    ('(allow file-read* (require-all (subpath "/a") (regex #"c$")))', "file-read-data", "/a/c", True, "require-all"),
    ("(allow file-read*)", "file-test-existence", "/a", False, "Apple's profiles name both"),
]


@pytest.mark.parametrize(("rules", "operation", "path", "answer", "report"), REPORTED)
def test_the_model_answers_as_the_reports_say(rules, operation, path, answer, report):
    profile = Profile(f"(version 1) (deny default) {rules}")

    assert profile.permits(operation, Subject(path=path)) is answer, report


def test_the_model_refuses_what_it_does_not_know():
    for text in ('(allow file-read* (extension "x"))', "(allow teleport)", "(allow file-read*", "(allow file-read*))"):
        with pytest.raises(ValueError, match=r"knows no|bracket"):
            Profile(text).permits("file-read-data", Subject(path="/"))


def test_a_path_is_spelt_as_its_names_are_stored():
    folders = {"/": ["Users", "tmp"], "/Users": ["Owner", "owner2"], "/Users/Owner": ["Models", "models"]}

    def names(place):
        if place not in folders:
            raise PermissionError(place)
        return folders[place]

    assert seatbelt.spell("/users/owner/models", names) == "/Users/Owner/models"
    assert seatbelt.spell("/USERS/OWNER/MODELS", names) == "/Users/Owner/MODELS"  # two are alike: a guess is not made
    assert seatbelt.spell("/TMP/Closed/x", names) == "/tmp/Closed/x"
