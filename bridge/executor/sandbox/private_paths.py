"""Refuse allow-lists that hold private paths of the host, and find sockets and credentials below readable folders.

Knows nothing about the program that enforces the list.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from bridge.errors import SandboxUnavailableError

_MAX_ENTRIES: Final = 200_000
_PREFIX_DEPTH: Final = 2  # an interpreter's own settings lie at its top; its packages are too many to walk every run
_CREDENTIAL_FOLDERS: Final = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".oci", "gcloud", "doctl")
_CREDENTIAL_FILES: Final = (
    ".boto",
    ".databrickscfg",
    ".dockercfg",
    ".git-credentials",
    ".my.cnf",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".terraformrc",
    ".vault-token",
    "application_default_credentials.json",
    "credentials.tfrc.json",
    "kaggle.json",
    "rclone.conf",
    "pip.conf",
    "pip.ini",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ecdsa_sk",
    "id_ed25519_sk",
    "id_rsa",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    "huggingface/token",
    "huggingface/stored_tokens",
    "gh/hosts.yml",
    ".git/config",  # a clone keeps the address that it was made from, with the password in it
)
_BESIDE_HUB: Final = ("token", "stored_tokens")  # of Hugging Face, wherever HF_HOME leads


def own_homes() -> tuple[str, ...]:
    """Return the home folders of this process's user: the user database's, and the one that HOME names.

    A service or a container may name another than the database: git and ssh then keep their credentials there. A home
    of `/`, which users of the system have, holds nothing of its own.
    """
    homes = [os.environ.get("HOME", "")]
    with suppress(KeyError):
        homes.insert(0, pwd.getpwuid(os.getuid()).pw_dir)
    return tuple(dict.fromkeys(home for home in homes if Path(home).is_absolute() and Path(home) != Path("/")))


def exposed(readable: Iterable[str], private: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each readable path with the private path that it is or contains, links resolved."""
    hidden = [(path, Path(os.path.realpath(path))) for path in private]
    for path in readable:
        real = Path(os.path.realpath(path))
        hidden_path = next((name for name, secret in hidden if secret.is_relative_to(real)), None)
        if hidden_path is not None or _is_credential(str(real)):
            yield path, hidden_path or path


def refuse_exposed(readable: Iterable[str], private: Iterable[str]) -> None:
    """Refuse an allow-list through which a run could reach a private path of the host.

    Raises:
        SandboxUnavailableError: a readable path is or contains a private one.
    """
    for path, secret in exposed(readable, private):
        raise SandboxUnavailableError(
            f"a run may not read {path}: that shows it {secret}",
            remedy="name the model folders themselves in model_roots and sandbox.read_only",
        )


def masked_below(read_only: Iterable[str], interpreter: Iterable[str]) -> dict[str, bool]:
    """Return the sockets and credentials below folders that a run may read, each with whether it is a folder.

    Args:
        read_only: declared folders, walked completely.
        interpreter: folders of programs and packages, walked near their top.

    Raises:
        SandboxUnavailableError: a declared folder holds too many entries to be walked before each run.
    """
    declared, programs = tuple(read_only), tuple(interpreter)
    entries = [entry for folder in declared for entry in _walk(folder, depth=None)]
    entries += [entry for folder in programs for entry in _walk(folder, depth=_PREFIX_DEPTH)]
    folders = {folder: os.path.realpath(folder) for folder in _mounted((*declared, *programs))}
    paths = {path for entry in entries for path in _places(entry, folders)}
    return {path: Path(path).is_dir() for path in sorted(paths)}


def _mounted(paths: Collection[str]) -> Iterator[str]:
    """Yield the paths that are shown by themselves: one below another is there as it lies, link or folder."""
    yield from (path for path in paths if not any(str(parent) in paths for parent in Path(path).parents))


def _places(entry: os.DirEntry[str], folders: Mapping[str, str]) -> Iterator[str]:
    """Yield where a run sees a socket or credential: a link, by every other name of what it leads to.

    Args:
        entry: the socket, credential or link.
        folders: that are shown, by the name under which they are, with their real places.
    """
    if not entry.is_symlink():
        yield entry.path
        return
    target = Path(os.path.realpath(entry.path))
    for folder, real in folders.items():
        if target.is_relative_to(real):
            yield str(Path(folder) / target.relative_to(real))


def _walk(top: str, depth: int | None) -> Iterator[os.DirEntry[str]]:
    """Yield sockets, credentials and links of their names below a folder, without following links to folders."""
    pending, count = [(top, 1)], 0
    while pending:
        folder, level = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        count += len(entries)
        if count > _MAX_ENTRIES:
            raise SandboxUnavailableError(
                f"the run may read {top}, which holds more than {_MAX_ENTRIES} entries",
                remedy="name the model folders themselves in model_roots and sandbox.read_only",
            )
        for entry in entries:
            if _is_credential(entry.path) or _is_socket(entry):
                yield entry
            elif entry.is_dir(follow_symlinks=False) and (depth is None or level < depth):
                pending.append((entry.path, level + 1))


def _is_credential(path: str) -> bool:
    name = path.rpartition("/")[2]
    if name in _BESIDE_HUB and Path(path).with_name("hub").is_dir():
        return True
    return name in _CREDENTIAL_FOLDERS or any(path.endswith(f"/{file}") for file in _CREDENTIAL_FILES)


def _is_socket(entry: os.DirEntry[str]) -> bool:
    if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
        return False
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False
