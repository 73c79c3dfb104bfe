"""A bus from its making to a verified result on git servers that are not git's own: JGit over ssh, dulwich over http.

`setup` makes the bus, a real runner serves it, a real client asks for one run, waits and verifies. Of JGit, on which
Gerrit and others are built, there is also a server that takes branches only: the bus finds its other prefix by itself.
Needs Debian's libjgit-java and openjdk-17-jdk-headless, and dulwich from PyPI; a case whose server is missing fails.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.studies.study import Entry, Row, Study
from bridge.bus.refs import names
from bridge.cli.host.main import main
from tests.fakes.clone import Clone
from tests.fakes.git_servers import free_port, git, wait_for_port
from tests.support.runner_site import Site

JARS = ":".join(f"/usr/share/java/{name}.jar" for name in ("org.eclipse.jgit", "javaewah", "slf4j-api", "slf4j-nop"))
SERVE = """
import java.io.File;
import org.eclipse.jgit.lib.Repository;
import org.eclipse.jgit.storage.file.FileRepositoryBuilder;
import org.eclipse.jgit.transport.ReceiveCommand;
import org.eclipse.jgit.transport.ReceivePack;
import org.eclipse.jgit.transport.UploadPack;

public class Serve {
    public static void main(String[] words) throws Exception {
        String[] parts = words[words.length - 1].split(" ", 2);
        File folder = new File(parts[1].replace("'", ""));
        Repository repository = new FileRepositoryBuilder().setGitDir(folder).setMustExist(true).build();
        if (parts[0].equals("git-upload-pack")) {
            new UploadPack(repository).upload(System.in, System.out, System.err);
            return;
        }
        ReceivePack receive = new ReceivePack(repository);
        receive.setPreReceiveHook((pack, commands) -> {
            for (ReceiveCommand command : commands) {
                if (!command.getRefName().startsWith(words[0])) {
                    command.setResult(ReceiveCommand.Result.REJECTED_OTHER_REASON,
                        "prohibited by Gerrit: not permitted: create");
                }
            }
        });
        receive.receive(System.in, System.out, System.err);
    }
}
"""
DULWICH = """
import sys
from wsgiref.simple_server import make_server
from dulwich.repo import Repo
from dulwich.server import DictBackend
from dulwich.web import WSGIRequestHandlerLogger, WSGIServerLogger, make_wsgi_chain
chain = make_wsgi_chain(DictBackend({"/bus.git": Repo(sys.argv[2])}))
make_server("127.0.0.1", int(sys.argv[1]), chain, handler_class=WSGIRequestHandlerLogger,
            server_class=WSGIServerLogger).serve_forever()
"""
Serving = Callable[[Path], contextlib.AbstractContextManager[str]]


@contextmanager
def jgit(folder: Path, takes: str) -> Iterator[str]:
    """Let git's ssh command be JGit, and yield the URL of the bus.

    Args:
        folder: of the site.
        takes: how refs begin that may be pushed to.
    """
    classes, script = folder / "classes", folder / "jgit"
    classes.mkdir()
    (classes / "Serve.java").write_text(SERVE)
    subprocess.run(["javac", "-cp", JARS, "-d", classes, classes / "Serve.java"], check=True)
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
    script.write_text(f'#!/bin/sh\nexec java {options} -cp "{classes}:{JARS}" Serve {takes} "$@"\n')
    script.chmod(0o755)
    with variables({"GIT_SSH_COMMAND": str(script), "GIT_SSH_VARIANT": "simple"}):
        yield f"ssh://jgit{folder / 'bus.git'}"


@contextmanager
def dulwich(folder: Path) -> Iterator[str]:
    """Serve the bus with dulwich, and yield its URL."""
    port = free_port()
    with (
        (folder / "dulwich.log").open("wb") as log,
        subprocess.Popen([sys.executable, "-c", DULWICH, str(port), folder / "bus.git"], stderr=log) as server,
    ):
        try:
            wait_for_port(port, server)
            yield f"http://127.0.0.1:{port}/bus.git"
        finally:
            server.terminate()


SERVERS: dict[str, Serving] = {
    "JGit, all refs": lambda folder: jgit(folder, "refs/"),
    "JGit, branches only": lambda folder: jgit(folder, "refs/heads/"),
    "dulwich, all refs": dulwich,
}


def run(case: str) -> list[Row]:
    """Take a bus on one server from its making to a verified result."""
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a root runner's programs run as another user
        site = Site(folder)
        with variables({"XDG_STATE_HOME": str(folder / "state")}), SERVERS[case](folder) as route:
            return [{"version": version(case), **life(site, route)}]


def life(site: Site, route: str) -> Row:
    """Return what `setup` said, and how a run and its verification ended: with 10 by a key that nobody pinned."""
    policy, state = site.folder / "mini.toml", site.folder / "state-mini"
    code, words = set_up(["--bus", route, "--name", "mini", "--policy", str(policy), "--state", str(state)])
    site.policy()  # beside the key that was made for it
    runner = site.start("serve", "--bus", route)
    chosen = {name: os.environ[name] for name in ("GIT_SSH_COMMAND", "GIT_SSH_VARIANT") if name in os.environ}
    clone = Clone(site.folder / "client", chosen)
    try:
        site.until(lambda: any("/runner/" in ref for ref in refs_of(site)), "the runner does not start")
        ran = clone.mac("run", "count", "--bus", route, "--wait", "--json")
        document = json.loads(ran.stdout or "{}")
        verified = clone.mac("verify", str(document.get("id")), "--bus", route)
    finally:
        runner.terminate()
        runner.wait(timeout=120)
    refs = refs_of(site)
    return {
        "setup": code,
        "said": next((line for line in words if names.BRANCH_PREFIX in line), ""),
        "prefix": names.BRANCH_PREFIX if any(ref.startswith(names.BRANCH_PREFIX) for ref in refs) else "refs/kakeya/",
        "outside refs/heads/": sum(not ref.startswith("refs/heads/") for ref in refs),
        "ended": document.get("outcome", {}).get("reason"),
        "verify": verified.returncode,
        "started": len(site.starts()),
    }


def refs_of(site: Site) -> list[str]:
    """Return the refs of the bus, as git finds them on the disk."""
    return git("for-each-ref", "--format=%(refname)", cwd=site.folder / "bus.git").split()


def set_up(words: Sequence[str]) -> tuple[int, list[str]]:
    """Run `setup --create-bus`; return its exit code and its lines."""
    streams = io.StringIO()
    with contextlib.redirect_stdout(streams), contextlib.redirect_stderr(streams):
        code = main(["setup", "--create-bus", *words])
    return code, streams.getvalue().splitlines()


def version(case: str) -> str:
    """Return which version of a server was tried."""
    if case.startswith("JGit"):
        query = ["dpkg-query", "--showformat=${Version}", "--show", "libjgit-java"]
    else:
        query = [sys.executable, "-c", "import dulwich; print('.'.join(map(str, dulwich.__version__)))"]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process for a while; programs that it starts get them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return a line for each server."""
    return [
        f"{entry['case']} {row['version']}: setup {row['setup']}, refs below {row['prefix']}, run {row['ended']} "
        f"after {row['started']} start, verify {row['verify']}"
        for entry in entries
        for row in entry["rows"]
    ]


STUDY = Study(
    "bus-servers",
    "Does a bus live on JGit and dulwich, and where JGit takes branches only?",
    lambda: list(SERVERS),
    run,
    "minutes",
    summary,
)
