"""What people get wrong with both programs: one line with what was wrong, what to do next, the table's exit code."""

from __future__ import annotations

import shlex

import pytest

from bridge.cli.host.main import main
from bridge.cli.table.runner_commands import RUNNER
from bridge.cli.table.runner_options import PlaceOptions
from bridge.errors import meant
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost

PROBE, CODE = "run mlx-env-probe", "run k3-fused-allmlx-code"
NO_HOSTS = ("ssh://", "ssh://a b", "ssh://-oProxyCommand=x", "ssh://user@-x", "ssh://h:99999", "ssh://[::1",
            "ssh://@", "ssh://u:p@h", "ssh://h/path")  # fmt: skip
ASKING = [
    # words that other programs have
    ("ps", "unknown command 'ps'; did you mean ls?", "kakeya-mac --help"),
    ("queue", "unknown command 'queue'; did you mean ls?", "kakeya-mac --help"),
    ("submit x", "unknown command 'submit'; did you mean run?", "kakeya-mac --help"),
    ("kill x", "unknown command 'kill'; did you mean cancel?", "kakeya-mac --help"),
    ("download x", "unknown command 'download'; did you mean fetch?", "kakeya-mac --help"),
    ("xyzzy", "status, logs, ls, fetch, open, runners, presets and 20 more", "kakeya-mac --help"),
    # arguments
    ("run", "the following arguments are required: PRESET", "run --help"),
    (f"{PROBE} -p", "argument -p/--param: expected one argument", "run --help"),
    (f"{PROBE} -p =3", "got -p '=3'; expected -p NAME=VALUE", "presets show mlx-env-probe"),
    (f"{PROBE} --wait-timeout soon", "got 'soon', expected a duration such as 45s, 1h30m or 2d", "run --help"),
    (f"{PROBE} --wait-timeout -5", "got '-5', expected a duration", "run --help"),
    (f"{PROBE} --expires 400d", "got --expires 400d; expected 1s to 1d", "run --help"),
    (f"{PROBE} --repeat 0", "got --repeat 0; expected 1 to 64", "run --help"),
    (f"{PROBE} --repeat 65", "are 65 runs; a sweep has at most 64", "list fewer values, or send it in parts"),
    (f"{PROBE} --repeat many", "got 'many', expected a whole number", "run --help"),
    (f"{PROBE} --ref HEAD", "runs the host's code; --dirty and --ref have no meaning for it", "run --help"),
    (f"{PROBE} --against HEAD", "compares no commits; --against has no meaning for it", "workloads.md"),
    ("run commit-comparison -p base=v1 --against v2", "-p base=v1 and --against name two commits", "run --help"),
    (f"{PROBE} --load drawn", "of a claim in one sitting", "add --profile claim"),
    (f"{PROBE} --fail-if slower", "and this line does not wait for that", "add --wait"),
    (f"{PROBE} --confirms nosuch", "no run matches 'nosuch'", "kakeya-mac ls"),
    (f"{PROBE} --via host", "--via: got 'host'; expected ssh://USER@HOST[:PORT]", "run --help"),
    *((f"{PROBE} --via '{url}'", "--via: got 'ssh://", "run --help") for url in NO_HOSTS),
    (f"{PROBE} --unsandboxed", "--unsandboxed is for your own machine", "add --bus embedded to run here"),
    (f"{CODE} -p depth=1,1", "parameter 'depth': got '1,1', which lists a value twice", "presets show"),
    (f"{CODE} -p depth=1,2 --repeat 40", "are 80 runs; a sweep has at most 64", "list fewer values"),
    (f"{CODE} -p prompts=x", "got 'x', expected one of code-structured, humaneval", "presets show"),
    ("run nosuch-at-all", "unknown preset 'nosuch-at-all'; known: commit-comparison,", "kakeya-mac presets"),
    # runs, folders and files
    ("status", "the following arguments are required: ID", "status --help"),
    ("status @lats", "got '@lats'; expected a run id, a prefix or suffix of one, or @last", "status --help"),
    ("status 1 2", "got '2' beside all that it takes", "status --help"),
    ("logs -n many x", "got 'many', expected a whole number", "logs --help"),
    ("fetch nosuch --pack x.zip", "cannot pack into 'x.zip'; expected NAME.tar.xz", "fetch --help"),
    ("open", "open needs a run", "kakeya-mac open @last; the page of the bus: kakeya-mac open --html"),
    ("quote /etc/passwd", "there is no folder '/etc/passwd'; expected one of a result", "kakeya-mac ls"),
    ("report", "name a run or a file, or --history PRESET", "report --help"),
    ("report --history nosuch", "no result of 'nosuch' is stored here", "kakeya-mac fetch ID"),
    ("gate check /nosuch", "/nosuch is not there; expected a report file or a result folder", "gate check --help"),
    ("gate check /dev/zero", "/dev/zero is no file or folder; expected a report file", "gate check --help"),
    ("verify . /nosuch", ". holds nothing of a result; expected a folder that `kakeya-mac fetch` wrote", "ls"),
    ("gc --older-than soon", "got 'soon', expected a duration", "gc --help"),
    # routes and keys of a clone
    ("init --bus x#zz", "got bus id 'zz'; expected 32 hexadecimal digits after '#'", "init --help"),
    ("init --bus memory --runner-key mini", "got runner key 'mini'; expected NAME=KEY", "the host's owner"),
    ("init --bus memory --root-key abc", "got 'abc'; expected 'ssh-ed25519 AAAA...'", "as the owner tells you"),
    ("init --bus memory --signing-key /nosuch", "/nosuch could not sign", "kakeya-mac init --signing-key none"),
    ("init --bus memory --branch-template x", "expected something like 'mac-bridge/{preset}-{id}'", "init --help"),
    ("init --bus memory --commit-as nobody", "expected one line: NAME <ADDRESS>", "--commit-as 'NAME <ADDRESS>'"),
    # set-up
    ("completion ksh", "got 'ksh'; expected bash or zsh or fish", "completion --help"),
    ("agent install", "no program is named", "--claude, --codex, --cursor, --vscode"),
    ("agent install --emacs", "no option '--emacs'; known: --claude, --codex", "agent install --help"),
    # words that come near to one
    ("hlep", "unknown command 'hlep'; did you mean help?", "--help"),
    ("sttaus x", "did you mean status?", "--help"),
    ("help lss", "unknown command 'lss'; did you mean ls?", "--help"),
    ("help al", "unknown command 'al'; did you mean all?", "--help"),
    ("help gate chek", "unknown command 'gate chek'; did you mean gate check", "--help"),
    ("run k3-fused", f"unknown preset 'k3-fused'; did you mean {CODE[4:]} or", "kakeya-mac presets"),
    (f"{CODE} -p dpth=3", "has no parameter 'dpth'; did you mean depth?", f"presets show {CODE[4:]}"),
    (f"{CODE} -p depth", "got -p 'depth'; expected -p NAME=VALUE", f"presets show {CODE[4:]}"),
    (f"{CODE} -p depth=lots", "got 'lots', expected a whole number from 0 to 15", f"presets show {CODE[4:]}"),
    (f"{CODE} -p depth=1,2,x", "got 'x', expected a whole number from 0 to 15", f"presets show {CODE[4:]}"),
    (f"{CODE} -p depth=99", "got '99', expected 0 to 15", f"presets show {CODE[4:]}"),
    (f"{CODE} --proflie=claim", "no option '--proflie'; did you mean --profile?", "run --help"),
    (f"{CODE} more", "got 'more' beside all that it takes", "run --help"),
    (f"{CODE} --profile clam", "--profile: got 'clam'; expected smoke or claim", "run --help"),
    (f"{CODE} --require citabel", "--require 'citabel'; expected evidence, CLAIM:evidence, or a premise", "--help"),
    ("ls --state runing", "--state: got 'runing'; expected queued or claimed or started or", "ls --help"),
    ("gate explain G5-LAUNCHE", "did you mean G5-LAUNCHES", "gate explain"),
    ("gate explain decod", "nothing prints 'decod'; did you mean decode_speedup", "gate explain"),
    ("compare nosuch", "no run matches 'nosuch', and no sweep that was sent from here", "kakeya-mac ls"),
    ("open --html nosuch", "and no result of a preset of that name is stored here", "kakeya-mac ls"),
    ("quote nosuch", "no run matches 'nosuch', and there is no such folder", "kakeya-mac ls"),
    (
        f"{CODE} --runner Mini",
        "got --runner 'Mini'; expected a runner's name, or labels such as gpu,quiet",
        "kakeya-mac runners",
    ),
    ("cancel nosuch", "no run matches 'nosuch'", "kakeya-mac ls"),
    ("attach @last", "no run has been sent from here", "kakeya-mac ls"),
    ("wait nosuch --for soon", "no option '--for'; known: --wait-timeout", "wait --help"),
    ("retry @last", "no run has been sent from here", "kakeya-mac ls"),
    ("fetch nosuch plot.png", "no run matches 'nosuch'", "kakeya-mac ls"),
    ("presets lst", "got 'lst' beside all that it takes", "presets --help"),
    ("presets show mlx-env-prob", "did you mean mlx-env-probe or", "kakeya-mac presets"),
    ("explain mlx-env-probe -p x=1", "has no parameter 'x'; known: none", "presets show"),
    ("ls --limit -3", "got '-3', expected a whole number from 0", "ls --help"),
    ("init --bus https://user:secret@host/x.git", "carries user information", "credential helper"),
    (f"{PROBE} --notify /nosuch", "--notify tells how a wait ended, and this line does not wait", "add --wait"),
    (f"{PROBE} --notify '\"open'", "No closing quotation", "--notify 'PROGRAM WORD"),
    (f"{PROBE} --label x", "no option '--label'; did you mean --load?", "run --help"),
    ("run ''", "got '' for PRESET; expected a text that is not empty", "run --help"),
    ("run ../etc/passwd", "unknown preset '../etc/passwd'; known:", "kakeya-mac presets"),
    (f"{CODE} -p depth=", "got '', expected a whole number from 0 to 15", f"presets show {CODE[4:]}"),
    (f"{CODE} -p depth=1..5", "got '1..5', expected a whole number", f"presets show {CODE[4:]}"),
    ("run commit-comparison --ref nosuch", "needs code to send", "run it inside a git clone"),
    ("agent nosuch", "got 'nosuch'; expected snippet or skill", "agent --help"),
    ("gc --older-than -1d", "argument --older-than: expected one argument", "gc --help"),
    ("mcp --stdio", "no option '--stdio'; known: --bus", "mcp --help"),
    ("config set x", "got 'set' beside all that it takes", "config --help"),
    ("quote EMPTY", "holds no manifest.json; expected the folder of a result", "kakeya-mac ls"),
    ("report EMPTY", "holds no manifest.json; expected the folder of a result", "kakeya-mac ls"),
    ("compare EMPTY EMPTY", "holds no manifest.json; expected the folder of a result", "kakeya-mac ls"),
    ("verify LIST", "list.json is no result, and there is no git clone", "that `kakeya-mac fetch` wrote"),
    ("verify ./nosuch", "./nosuch is not there, and there is no git clone", "that `kakeya-mac fetch` wrote"),
    ("verify PACKED", "is no packed result: it ends too early", "kakeya-mac fetch ID --pack FILE"),
    ("quote PACKED", "is no packed result: it ends too early", "kakeya-mac fetch ID --pack FILE"),
    ("report LIST", "is no report: a JSON list, expected an object", "report --help"),
    ("report BIG", "2147483648 bytes; a report has at most 16777216", "report --help"),
    ("gate check EMPTY", "holds no report and no result", "gate check --help"),
    ("report ./nosuch", "there is no folder './nosuch'; expected one of a result, or a run id", "kakeya-mac ls"),
]
POLICY = [
    ("bogus = 1", "bogus unknown key", "did you mean bus?"),
    ("slots = 0", "slots Input should be greater than or equal to 1; got 0", "as in: slots = 1"),
    ("slots = 17", "slots: one machine has at most 16", "policy example"),
    ('interpreter = "python3"', 'interpreter expected an absolute path; got "python3"', "as in: interpreter ="),
    ('interpreter = "/nowhere/python3"', "/nowhere/python3 cannot be run", "name a Python that has kakeya installed"),
    ('labels = "gpu"', 'labels Input should be a valid array; got "gpu"', 'as in: labels = ["mac"]'),
    ('[presets]\nalow = ["x"]', "presets.alow unknown key", "did you mean allow?"),
    ('[limits]\nwall_s = "10m"', 'limits.wall_s Input should be a valid number; got "10m"', "as in: wall_s = 3600.0"),
    ('[sandbox]\nmode = "on"', "should be 'required', 'preferred' or 'off'; got \"on\"", 'as in: mode = "preferred"'),
    ('[sandbox]\nnetwork = "yes"', "sandbox.network 'yes': write names", "as in: network ="),
    ('[env]\nKAKEYA_SEED = "1"', "the runner sets KAKEYA_SEED; use model_roots, target and drafter", "policy example"),
    ('approval = ["ask"]', "approval is an argv list whose first item is an absolute path", "policy example"),
    ('only_when = ["night"]', 'expected idle, ac_power or hours-HH-HH; got "night"', "as in: only_when ="),
    ('audit = "file"', "audit expected journald, syslog or an absolute path", "as in: audit ="),
    ('[names."ada"]\npreset = ["x"]', "names.ada.preset unknown key", "did you mean presets?"),
    ('[names."ada"]\nhours = "night"', "names.ada.hours expected hours-HH-HH", ""),
    ('[names."ada".params.lr]\nat_mots = 3', "names.ada.params.lr.at_mots unknown key", "did you mean at_most?"),
    ('trust_pushers = true\n[sandbox]\nmode = "off"', "trust_pushers needs a sandbox: set sandbox.mode", "example"),
    ('[executor]\nengine = "k8s"', "should be 'local', 'slurm' or 'ray'; got \"k8s\"", 'as in: engine = "slurm"'),
    ('[lfs]\nurl = "ftp://x"', "lfs 'ftp://x': expected an https URL", "policy example"),
    ('name = "twice"', "not TOML: Cannot overwrite a value", "policy example"),
]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
OWNING = [
    ("--label mac setup", 2, "got '--label' before a command; options stand behind it", "kakeya-runner setup --help"),
    ("setup --create-bus", 2, "--create-bus makes a bus of --bus ROUTE", "setup --bus ROUTE --create-bus"),
    ("revoke nosuch", 0, "no list of this host names it: what it signs is refused all the same", "trust list"),
    ("srve", 2, "unknown command 'srve'; did you mean serve or supervise?", "kakeya-runner --help"),
    ("workload nwe x", 2, "unknown command 'workload nwe'; did you mean workload new or workload check?", "--help"),
    ("workload new", 2, "the following arguments are required: NAME|FOLDER", "workload new --help"),
    ("gc --older-than soon", 2, "got 'soon', expected a duration such as 45s", "gc --help"),
    ("setup --name 'My Mac'", 2, "--name: got 'My Mac'; expected lower-case letters, digits", "setup --name mini"),
    ("setup --label GPU", 2, "--label: got 'GPU'; expected lower-case letters", "setup --label mini"),
    ("setup --bus /nosuch --create-bus", 2, "route '/nosuch': there is no such folder", "mount or make it"),
    ("serve", 2, "no bus is named", "give --bus ROUTE"),
    ("once --bus ftp://x/y", 2, "route 'ftp://x/y' is of a kind that is not supported", "https URL"),
    ("policy explain nosuch-at-all", 2, "unknown preset 'nosuch-at-all'; known:", "kakeya-mac presets"),
    ("policy explain mlx-env-probe --as 'a b'", 2, "got principal 'a b'; expected a name such as", ""),
    ("workload new x --from /dev/zero", 2, "/dev/zero is a device or a pipe, which has no end", "save what it gives"),
    ("workload new x --from caf\udce9.py", 2, "the name 'caf\\udce9.py' is no text of one line", "another name"),
    ("workload new x --from quiet.sh --from /proc/self/mem", 3, "Input/output error", "doctor"),
    ("workload new x --from /nosuch.py", 2, "there is no program /nosuch.py", "--from train.py"),
    ("workload new x --from .", 2, ". is a folder, and the first --from is the program", "--from ./PROGRAM"),
    ("workload new x --from quiet.sh --from /nosuch.csv", 2, "there is no file /nosuch.csv", "ls shows what is here"),
    ('workload new x --from quiet.sh --arguments "\'"', 2, "No closing quotation", "close the quote"),
    ("workload check nosuch", 1, "nosuch is no folder", "kakeya-runner workload new NAME"),
    ("welcome ada", 2, "got 'ada'; expected one name and one key", "kakeya-runner welcome 'NAME ssh-ed25519 KEY'"),
    ("welcome 'ada ssh-rsa AAAAB3NzaC1yc2E'", 2, "the key is of type ssh-rsa; expected ssh-ed25519", "welcome"),
    ("welcome 'ada ssh-ed25519 AAAA'", 2, "is no ed25519 key: it is cut off", "kakeya-runner welcome"),
    (f"welcome 'ada {KEY} {KEY}'", 2, "the line holds 2 keys; expected one name and one key", "kakeya-runner welcome"),
    (f"welcome 'ada,bob {KEY}'", 2, "'ada,bob' is no name of one person", "kakeya-runner welcome"),
    (f"welcome 'mini {KEY}'", 2, "mini is a runner of this bus", "another name for the person"),
    ("trust init", 2, "no bus is named", "give --bus ROUTE"),
    ("bus check --bus /nosuch", 2, "route '/nosuch': there is no such folder", "mount or make it"),
    ("serve --bus .", 3, "does not appear to be a git repository", "git init --bare FOLDER"),
    ("policy check --policy .", 1, "it is a folder; expected a file", "kakeya-runner setup"),
    ("logs --level loud", 2, "got 'loud'; expected debug or info", "logs --help"),
    ("exec", 2, "nobody asked over ssh", "kakeya-runner exec --show prints the line"),
    ("workload new mlx-env-probe", 2, "'mlx-env-probe' is the name of an installed preset", "choose another name"),
    ("workload new 'Bad Name'", 2, "got the name 'Bad Name'; expected lower-case letters", ""),
    ("workload new quiet --from quiet.sh --number loss", 2, "'loss'; it left none next print it", "--number none"),
    ("workload list", 0, "no folder is offered here; kakeya-runner workload allow FOLDER", ""),
    ("gc", 0, "gc 0 removed", ""),
    ("workload remove nosuch", 2, "is not allowed here; allowed: none", "kakeya-runner workload list"),
    ("trust add x", 2, "'x' is no public key; expected 'ssh-ed25519 AAAA...'", "cat ~/.ssh/id_ed25519.pub"),
    ("trust remove nobody", 2, "nobody is not trusted for signing requests", "kakeya-runner trust list"),
    ("revoke", 2, "revoke: the following arguments are required: PRINCIPAL|KEY", "revoke --help"),
    ("stop --run nosuch", 2, "no run of this host goes by 'nosuch'", "kakeya-runner status"),
    ("keygen --agent /nosuch", 2, "/nosuch is no public key file", "name the .pub file of a key"),
    ("supervise /nosuch", 2, "/nosuch is no run's folder: it has no job.json", "docs/supervisor.md"),
]


def files_that_are_no_results(folder):
    """Make a folder, a report and an archive that are none; return their paths by the word that stands for each."""
    files = {"EMPTY": "empty", "LIST": "list.json", "BIG": "big.json", "PACKED": "result.tar.xz"}
    places = {word: str(folder / name) for word, name in files.items()}
    (folder / "empty").mkdir()
    (folder / "list.json").write_text("[]")
    (folder / "result.tar.xz").write_bytes(b"no archive")
    with (folder / "big.json").open("wb") as file:
        file.truncate(2 << 30)  # without a byte on the disk
    return places


@pytest.mark.parametrize(("words", "message", "remedy"), ASKING, ids=[words for words, _, _ in ASKING])
def test_who_asks_is_told_what_was_wrong_and_what_to_do_and_nothing_is_sent(tmp_path, words, message, remedy):
    requester = Requester(tmp_path)
    ScriptedHost(requester.bus, requester.clock).beat()
    places = files_that_are_no_results(tmp_path)
    ran = requester.run(*(places.get(word, word) for word in shlex.split(words)))
    stderr = " ".join(ran.err.split())
    # What is there and is no result is a finding, not a mistake of the command line.
    code = 1 if message.startswith(("holds no manifest", "is no packed")) else 2
    assert (ran.code, message in stderr, remedy in stderr.rpartition("next ")[2]) == (code, True, True), stderr
    assert "Traceback" not in stderr
    assert requester.bus.snapshot().requests == ()


@pytest.mark.parametrize(
    ("command", "chars", "message"),
    [
        ("status", 300, f"no run matches '{'z' * 60}'"),
        ("verify", 300, "got a name of 300 characters; expected one that a file may have"),
        ("open --html", 70_000, "got a word of 70000 characters; expected at most 65536"),
    ],
)
def test_what_is_much_too_long_is_not_said_again_in_full(tmp_path, command, chars, message):
    ran = Requester(tmp_path).run(*command.split(), "z" * chars)
    assert (ran.code, message in ran.err, len(ran.err) < 400) == (2, True, True)


@pytest.mark.parametrize("command", ["verify", "open --html", "report", "gate check", "quote", "compare x"])
def test_an_empty_word_is_not_taken_for_this_folder(tmp_path, command):
    ran = Requester(tmp_path).run(*command.split(), "")
    assert (ran.code, "expected a text that is not empty" in ran.err) == (2, True)


def test_a_listing_of_nothing_does_not_say_that_there_are_no_runs(tmp_path):
    assert "no such runs" in Requester(tmp_path).run("ls", "--limit", "0").err


def test_what_begins_with_the_word_comes_before_what_looks_like_it():
    assert meant("k3-fused", ["k3-step2-fused", "k3-fused-b"]) == "did you mean k3-fused-b or k3-step2-fused?"
    assert meant("x", ["left", "right"]) == "known: left, right"
    assert meant("", ["left"]) == "known: left"
    assert meant("x", []) == "known: none"
    assert meant("MLX-Env", ["mlx-env-probe", "k3"]) == "did you mean mlx-env-probe?"
    assert meant("mini", ["Mini", "studio"]) == "did you mean Mini?"


@pytest.fixture
def own(tmp_path, monkeypatch, capsys):
    """Run `kakeya-runner` in a folder of an owner whose policy begins well."""
    tmp_path.chmod(0o700)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("KAKEYA_BUS", raising=False)
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    (place / "quiet.sh").write_text("#!/bin/sh\ntrue\n")
    (place / "quiet.sh").chmod(0o755)

    def call(words: str, more: str = "") -> tuple[int, str]:
        path = tmp_path / "policy.toml"
        path.write_text(f'schema = 1\nname = "mini"\n{more}\n')
        path.chmod(0o600)
        argv = shlex.split(words)
        command, _ = RUNNER.find(argv)
        takes_policy = command is not None and issubclass(command.options, PlaceOptions) and "--policy" not in argv
        code = main([*argv, *(["--policy", str(path)] if takes_policy else [])])
        printed = capsys.readouterr()
        return code, " ".join((printed.err + printed.out).split())

    return call


@pytest.mark.parametrize(("words", "code", "message", "remedy"), OWNING, ids=[words for words, _, _, _ in OWNING])
def test_who_owns_the_machine_is_told_what_was_wrong_and_what_to_do(own, words, code, message, remedy):
    ended, text = own(words)
    assert (ended, message in text, remedy in text.rpartition(" next")[2]) == (code, True, True), text
    assert "Traceback" not in text


@pytest.mark.parametrize(("line", "message", "remedy"), POLICY, ids=[line for line, _, _ in POLICY])
def test_a_mistake_in_a_policy_is_named_with_its_key_and_what_is_expected(own, line, message, remedy):
    ended, text = own("policy check", line)
    what, _, following = text.replace(": ", " ").rpartition(" remedy ")
    assert (ended, message.replace(": ", " ") in what, remedy.replace(": ", " ") in following) == (1, True, True), text


def test_a_number_that_is_put_right_is_taken_at_the_second_try(own):
    assert own("workload new quiet --from quiet.sh --number loss")[0] == 2
    assert own("workload new quiet --from quiet.sh --from /proc/self/mem")[0] == 3  # nothing is left of it either
    assert own("workload new quiet --from quiet.sh --number none")[0] == 0
