"""What kernels were reported to do under the profiles of other projects, put to the model; and what ours answers there.

A profile is written down as facts, as far as its reports touch it: operations, a kind of filter, names. The answers are
those of the reports, each named by its project and the number of its issue or pull request there.
"""

from __future__ import annotations

import pytest

from bridge.executor.sandbox import seatbelt
from tests.support.seatbelt_kernel import Profile, Subject, Volume

HOME = "/Users/somebody"
CACHE = "dyld/dyld_shared_cache_arm64e"
DYLD = f"/System/Volumes/Preboot/Cryptexes/OS/System/Library/{CACHE}"
KMP = "/__KMP_REGISTERED_LIB_501"
CHROMIUM = "org.chromium.Chromium.MachPortRendezvousServer.4711"
PASSWORDS = "2BUA8C4S2C.com.1password.browser-helper"
# Name → facts: (action, operations, kind of filter or "", values).
NIX = [
    ("deny", "default", "", ()),
    ("allow", "process-fork sysctl-read system-socket ipc-posix*", "", ()),
    ("allow", "signal", "target", ("same-sandbox",)),
    ("allow", "mach-lookup", "global-name", ("com.apple.system.opendirectoryd.libinfo",)),
    ("allow", "file-read*", "literal", ("/System/Library/CoreServices/SystemVersion.plist",)),
    ("allow", "file-read-metadata", "literal", ("/dev", "/etc", "/var")),
    ("allow", "file*", "literal", ("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")),
    ("allow", "file-read*", "subpath", ("/usr/share/zoneinfo",)),
]
ROSETTA = ("allow", "file-read*", "subpath", ("/System/Library/LaunchDaemons/com.apple.oahd.plist",))
CODEX = [
    ("deny", "default", "", ()),
    ("allow", "process-exec process-fork", "", ()),
    ("allow", "signal process-info*", "target", ("same-sandbox",)),
    ("allow", "sysctl-read", "sysctl-name", ("hw.ncpu", "hw.pagesize_compat", "kern.argmax", "kern.osrelease")),
    ("allow", "sysctl-read", "sysctl-name-prefix", ("hw.optional.arm.", "kern.proc.pid.")),
    ("allow", "iokit-open", "iokit-registry-entry-class", ("RootDomainUserClient",)),
    ("allow", "mach-lookup", "global-name", ("com.apple.PowerManagement.control",)),
]
DIRECTORY = ("allow", "mach-lookup", "global-name", ("com.apple.system.opendirectoryd.libinfo",))
LOCKS = ("allow", "ipc-posix-sem*", "", ())
OPENMP = (
    *("allow", "ipc-posix-shm-read-data ipc-posix-shm-write-create ipc-posix-shm-write-unlink"),
    *("ipc-posix-name-regex", ("^/__KMP_REGISTERED_LIB_[0-9]+$",)),
)
RUNTIME = [
    ("deny", "default", "", ()),
    ("allow", "process-exec process-fork ipc-posix-shm* ipc-posix-sem*", "", ()),
    ("allow", "mach-lookup", "global-name", ("com.apple.logd", "com.apple.securityd.xpc")),
    ("allow", "sysctl-read", "sysctl-name", ("hw.activecpu", "hw.cputype", "hw.ncpu")),
]
OPEN = ("allow", "default", "", ())
ALL_SYSCTLS = [("deny", "default", "", ()), ("allow", "sysctl-read", "", ())]
WRITES = [OPEN, ("deny", "file-write*", "", ()), ("allow", "file-write*", "subpath", ("/private/tmp/execroot",))]
TERMINALS = ("allow", "file-write*", "literal", ("/dev/ptmx",))
NO_READ = [OPEN, ("deny", "file-read*", "subpath", (f"{HOME}/.aws",))]
# project and number, profile, operation, subject, its answer there, ours, without a network
REPORTS = [
    ("Nix 5888", NIX, "file-read-metadata", f"/System/Library/{CACHE}", False, True),
    ("nixpkgs 345333", NIX, "file-read-data", "/System/Volumes/Preboot/Cryptexes/OS", False, True),
    ("nixpkgs 345333", NIX, "file-read-metadata", DYLD, False, True),
    ("nixpkgs 345333", NIX, "mach-lookup", "com.apple.system.notification_center", False, True),
    ("nixpkgs 345333", NIX, "mach-lookup", "com.apple.logd", False, True),
    ("nixpkgs 345333", NIX, "mach-lookup", "com.apple.diagnosticd", False, False),
    (
        *("nixpkgs 345333", NIX, "file-read-data"),
        *("/Library/Preferences/Logging/com.apple.diagnosticd.filter.plist", False, True),
    ),
    ("nixpkgs 345333", NIX, "file-read-data", "/dev/autofs_nowait", False, False),
    ("Nix 759", NIX[:1], "process-fork", "", False, True),
    ("Nix 759, mended", NIX, "process-fork", "", True, True),
    ("Nix 5884", NIX, "file-read-metadata", ROSETTA[3][0], False, True),
    ("Nix 5884, mended", [*NIX, ROSETTA], "file-read-metadata", ROSETTA[3][0], True, True),
    ("Nix 5884", NIX, "file-read-metadata", "/nix/var/nix/profiles/per-user/root/channels/nixpkgs", False, False),
    ("Nix 675", NIX, "file-read-metadata", "/usr/lib/libSystem.B.dylib", False, True),
    ("Codex 23505", CODEX, "mach-lookup", "com.apple.sysmond.system", False, False),
    ("Codex 17644", CODEX, "iokit-open-user-client", "AGXDeviceUserClient", False, True),
    ("Codex 17644", CODEX, "iokit-open-user-client", "RootDomainUserClient", True, False),
    (
        *("Codex 17644, reproduced", [OPEN, ("deny", "iokit-open", "", ())], "iokit-open-user-client"),
        *("AGXDeviceUserClient", False, True),
    ),
    ("Codex 1808", CODEX, "ipc-posix-sem-create", "/mp-k2x9w_ab", False, True),
    ("Codex 1808, mended", [*CODEX, LOCKS], "ipc-posix-sem-create", "/mp-k2x9w_ab", True, True),
    ("Codex 16945", CODEX, "ipc-posix-shm-write-create", KMP, False, True),
    ("Codex 16945, mended", [*CODEX, OPENMP], "ipc-posix-shm-write-create", KMP, True, True),
    ("unsloth 10526", [*CODEX, OPENMP], "ipc-posix-shm-write-data", KMP, False, True),
    ("unsloth 7101", RUNTIME, "ipc-posix-shm-read-data", "/of-another-program", True, False),
    ("Codex 3334", CODEX, "mach-lookup", DIRECTORY[3][0], False, True),
    ("Codex 3334, mended", [*CODEX, DIRECTORY], "mach-lookup", DIRECTORY[3][0], True, True),
    ("Codex 21292", CODEX, "mach-register", CHROMIUM, False, False),
    ("sandbox-runtime 210", RUNTIME, "mach-register", CHROMIUM, False, False),
    ("sandbox-runtime 83, Claude Code 40209", RUNTIME, "mach-lookup", PASSWORDS, False, False),
    ("sandbox-runtime 287", RUNTIME, "sysctl-read", "hw.cputype", True, True),
    ("Claude Code 42857", RUNTIME, "mach-lookup", "com.apple.SystemConfiguration.configd", False, False),
    ("Claude Code 34876", RUNTIME, "mach-lookup", "com.apple.trustd.agent", False, False),
    (
        *("Claude Code 82793", [*RUNTIME, ("allow", "mach-lookup", "global-name", ("com.apple.trustd",))]),
        *("mach-lookup", "com.apple.trustd.agent", False, False),
    ),
    (
        *("Claude Code 85857", [*RUNTIME, ("allow", "mach-lookup", "global-name", ("com.apple.trustd.agent",))]),
        *("mach-lookup", "com.apple.trustd.agent", True, False),
    ),
    ("Claude Code 81032", RUNTIME, "sysctl-read", "kern.sysv.semmni", False, True),
    ("Claude Code 81032", RUNTIME, "ipc-posix-sem-create", "/mp-k2x9w_ab", True, True),
    (
        *(
            "Claude Code 39635",
            [OPEN, ("deny", "file-read*", "subpath", ("/",)), ("allow", "file-read*", "subpath", ("/usr",))],
        ),
        *("file-read-data", "/usr/lib/libSystem.B.dylib", True, True),
    ),
    ("sandbox-runtime 8", NO_READ, "file-read-data", f"{HOME}/.aws/credentials", False, False),
    ("sandbox-runtime 8: a file is moved", NO_READ, "file-write-unlink", f"{HOME}/.aws/credentials", True, False),
    ("sandbox-runtime 8: and read there", NO_READ, "file-read-data", f"{HOME}/project/stolen.txt", True, False),
    ("agent-safehouse 150", ALL_SYSCTLS, "sysctl-read", "kern.procargs2.417", True, False),
    (
        *("agent-safehouse 150, mended", [*ALL_SYSCTLS, ("deny", "sysctl-read", "sysctl-name-regex", ("procargs",))]),
        *("sysctl-read", "kern.procargs2.417", False, False),
    ),
    ("zcode-acp 130", WRITES, "file-write-data", "/dev/ptmx", False, False),
    ("zcode-acp 130: reading was open", WRITES, "file-read-data", "/dev/ptmx", True, False),
    ("zcode-acp 130, mended", [*WRITES, TERMINALS], "file-write-data", "/dev/ptmx", True, False),
    ("Bazel's page on sandboxing: reads everything", WRITES, "file-read-data", f"{HOME}/.netrc", True, False),
    (
        "Bazel's page on sandboxing: writes its own",
        WRITES,
        "file-write-create",
        "/private/tmp/execroot/a.o",
        True,
        False,
    ),
    ("Bazel's page on sandboxing: writes no other", WRITES, "file-write-create", f"{HOME}/a.o", False, False),
    ("sandvault 164", [OPEN], "file-read-data", "/Library/Keychains/System.keychain", True, False),
    (
        *("sandvault 164, mended", [OPEN, ("deny", "file-read*", "subpath", ("/Library/Keychains",))]),
        *("file-read-data", "/Library/Keychains/System.keychain", False, False),
    ),
    ("Chromium 799149", NIX[:1], "process-info-pidinfo", "", True, False),
    ("Chromium 799149", NIX[:1], "nvram-get", "boot-args", True, False),
    ("Chromium 799149", NIX[:1], "iokit-get-properties", "", True, True),
    (
        *("Chromium 799149, mended", [*NIX[:1], ("deny", "iokit-get-properties process-info* nvram*", "", ())]),
        *("nvram-get", "boot-args", False, False),
    ),
]


def written(facts):
    """Return the profile that facts describe."""
    rules = []
    for action, operations, kind, values in facts:
        texts = [value if kind == "target" else f'#"{value}"' if "regex" in kind else f'"{value}"' for value in values]
        rules.append(f"({action} {operations}{f' ({kind} {chr(32).join(texts)})' if kind else ''})")
    return Profile("(version 1)" + "".join(rules))


def subject_of(operation, text):
    return Subject(path=text) if operation.startswith("file-") else Subject(name=text)


@pytest.mark.parametrize(("report", "facts", "operation", "subject", "theirs", "_ours"), REPORTS)
def test_the_model_answers_as_the_kernel_was_reported_to(report, facts, operation, subject, theirs, _ours):
    assert written(facts).permits(operation, subject_of(operation, subject)) is theirs, report


@pytest.mark.parametrize(("report", "_facts", "operation", "subject", "_theirs", "ours"), REPORTS)
def test_our_profile_opens_of_it_what_a_run_needs_and_no_more(report, _facts, operation, subject, _theirs, ours):
    profile = Profile(seatbelt.profile(["/opt/venv"], ["/private/var/kakeya/run/work"], network=False))

    assert profile.permits(operation, subject_of(operation, subject)) is ours, report


def test_a_run_with_a_network_may_ask_whom_apples_tls_asks():
    """Claude Code 34876: without it a Go program trusts no certificate."""
    profile = Profile(seatbelt.profile([], [], network=("data.example.org",), port=3128))

    assert profile.permits("mach-lookup", Subject(name="com.apple.trustd.agent"))


def test_a_rule_with_a_link_in_its_path_matches_nothing():
    """code-buddy 88: /var/folders is a link's name, and the kernel compares the place behind it."""
    mac = Volume(frozenset({"/private/var/folders/a/b"}), {"/var": "private/var"})
    for folder, answer in (("/var/folders", False), ("/private/var/folders", True)):
        facts = [
            NIX[0],
            ("allow", "file-read-metadata", "literal", ("/var",)),
            ("allow", "file*", "subpath", (folder,)),
        ]
        assert mac.permits(written(facts), "file-write-data", "/var/folders/a/b") is answer
