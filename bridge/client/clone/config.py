"""Find which bus a command talks to, and say where that answer came from.

First hit wins: ``--bus``, ``KAKEYA_BUS``, ``<git common dir>/kakeya.toml``, committed ``kakeya.toml``, user config,
embedded. Knows files and variables, not buses: whether a route exists is checked before the first write.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from bridge.client.clone.repository import Repository, find_repository
from bridge.client.document.parts import BusPart, PlaceRow
from bridge.errors import UsageError, meant

Source = Literal["--bus", "KAKEYA_BUS", "clone", "committed", "user", "embedded"]
FILE_NAME: Final = "kakeya.toml"
USER_FILE_NAME: Final = "config.toml"
FILE_MAX_BYTES: Final = 64 * 1024
EMBEDDED: Final = "embedded"
SSH_REPOSITORY: Final = "kakeya"  # `kakeya-runner exec` serves one bus, whatever it is called
_BUS_ID = re.compile(r"[0-9a-f]{32}")
_VIA = re.compile(
    r"ssh://([^/#@:\s]+@)?(?!-)([\w.-]+|\[[0-9A-Fa-f:.]+(%\w+)?\])(:(?P<port>\d{1,5}))?/?(#[0-9a-f]{32})?"
)
_PORT_MOST: Final = 65535
_TEMPLATE = re.compile(r"[A-Za-z0-9._/-]*\{preset\}-\{id\}[A-Za-z0-9._-]*")
OFF: Final = "none"
_SIGNING_KEYS: Final = frozenset({"signing_key", "principal"})
_IDENTITY: Final = "identity"
_IDENTITY_KEYS: Final = frozenset({"committer", "message_prefix"})
_KEYS: Final = (
    frozenset({"schema", "bus_id", "route", "runner_keys", "root_key", "branch_template", _IDENTITY}) | _SIGNING_KEYS
)


@dataclass(frozen=True)
class BusChoice:
    """The bus a command will use.

    Attributes:
        source: which of the six places answered.
        where: the file, variable or option, for people.
        route: remote name, path or URL; None for the embedded bus, or when a committed file names only an id.
        bus_id: the pinned id, or None.
        branch_template: full or short branch name with ``{preset}`` and ``{id}``, or None.
        runner_keys: pinned public keys, each as ``NAME=KEY``.
        root_key: the bus owner's key or its fingerprint, None for none.
    """

    source: Source
    where: str
    route: str | None = None
    bus_id: str | None = None
    branch_template: str | None = None
    runner_keys: tuple[str, ...] = ()
    root_key: str | None = None

    @property
    def embedded(self) -> bool:
        """Whether this is the bus on this machine, made on demand."""
        return self.route is None and self.bus_id is None

    def part(self, bus_id: str | None = None) -> BusPart:
        """Return it as `--json` shows it, under the id that the bus turned out to have, else the pinned one."""
        return BusPart(bus_id or self.bus_id, self.route, self.source, self.where, self.embedded)

    @property
    def words(self) -> list[str]:
        """Return what a further command needs to find this bus: nothing, unless only an option named it."""
        if self.source != "--bus":
            return []
        pin = "" if self.bus_id is None else f"#{self.bus_id}"
        return ["--bus", f"{self.route}{pin}" if self.route is not None else "embedded"]


@dataclass(frozen=True)
class SigningChoice:
    """The key requests are signed with, ``none`` to sign nothing, and the principal they name."""

    key: str
    principal: str


@dataclass(frozen=True)
class IdentityChoice:
    """Who makes the commits of requests, where a remote has rules about that; what is None or empty is as usual.

    Attributes:
        committer: ``NAME <ADDRESS>``.
        message_prefix: goes before each commit message.
    """

    committer: str | None = None
    message_prefix: str = ""


@dataclass(frozen=True)
class ClientSettings:
    """Where a command works: the clone around it if any, its bus, its key, and where results and state go.

    `named_root_key` is the bus owner's key that an option or KAKEYA_ROOT_KEY names, `new_owner` whether it takes the
    place of another that is remembered.
    """

    directory: Path
    repository: Repository | None
    data_dir: Path
    config_dir: Path
    bus: BusChoice
    signing: SigningChoice | None = None
    named_root_key: str | None = None
    identity: IdentityChoice = IdentityChoice()
    new_owner: bool = False

    @property
    def state_dir(self) -> Path:
        """Return `<git common dir>/kakeya`; without a clone, or where that cannot be written, a data directory."""
        if self.repository is None:
            return self.data_dir
        common = self.repository.common_dir
        if os.access(common, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            return common / "kakeya"
        return self.data_dir / "clones" / hashlib.sha256(os.fsencode(common)).hexdigest()[:16]

    @cached_property
    def merged_file(self) -> tuple[bytes, str]:
        """`kakeya.toml` on the default branch of a remote, and where that is; git is asked once a command.

        A bus that a committed file names is not the reader's choice: that file may be anybody's.
        """
        if self.repository is None:
            return b"", ""
        from bridge.client.clone.default_branch import merged_file

        chosen = None if self.bus.source == "committed" else self.bus.route
        return merged_file(self.repository.top, self.repository.common_dir, FILE_NAME, chosen)

    @property
    def runs_dir(self) -> Path:
        """Return the folder that holds one folder of results per run."""
        return self.state_dir / "runs"


def discover(directory: Path, environment: Mapping[str, str], bus_option: str | None = None) -> ClientSettings:
    """Return the settings of a command started in a directory.

    Raises:
        UsageError: a configuration file or option is malformed; the message names the file and the key.
    """
    repository = find_repository(directory)
    data_dir, config_dir = _user_dirs(environment)
    choice = (
        _from_option(bus_option, directory)
        or _from_text(environment.get("KAKEYA_BUS"), "KAKEYA_BUS", "KAKEYA_BUS")
        or (_from_file(repository.common_dir / FILE_NAME, "clone") if repository else None)
        or (_from_file(repository.top / FILE_NAME, "committed") if repository else None)
        or _from_file(config_dir / USER_FILE_NAME, "user")
        or BusChoice("embedded", "nothing else is configured")
    )
    own = [path for path, _ in _own_paths(repository, config_dir)]
    signing = next(filter(None, map(_signing, own)), None)
    identity = next(filter(None, map(_identity, own)), IdentityChoice())
    named = environment.get("KAKEYA_ROOT_KEY") or None
    settings = ClientSettings(directory.resolve(), repository, data_dir, config_dir, choice, signing, named, identity)
    return replace(settings, bus=_with_template(settings))


def _with_template(settings: ClientSettings) -> BusChoice:
    """Return the bus with the branch template that this clone's or the user's own file has for the same route.

    An option or variable names a bus; it says nothing of the branches that this clone may push.
    """
    choice = settings.bus
    if choice.source not in {"--bus", "KAKEYA_BUS"} or choice.embedded:
        return choice
    top = settings.directory if settings.repository is None else settings.repository.top
    routes = {choice.route, str((top / (choice.route or "")).resolve())}  # `init` writes a folder's whole path
    for _, written in _own_files(settings):
        if written.route in routes and choice.bus_id in {None, written.bus_id or choice.bus_id}:
            return replace(choice, branch_template=written.branch_template)
    return choice


def pinned_keys(settings: ClientSettings) -> tuple[tuple[str, ...], str]:
    """Return the keys that this clone's or the user's own file pins, and which file; a committed file is not asked."""
    for path, choice in _own_files(settings):
        if choice.runner_keys:
            return choice.runner_keys, str(path)
    return (), ""


def pinned_root_key(settings: ClientSettings) -> tuple[str | None, str]:
    """Return the bus owner's key that the environment, this clone's or the user's own file names, and where."""
    if settings.named_root_key is not None:
        return settings.named_root_key, "--root-key or KAKEYA_ROOT_KEY"
    for path, choice in _own_files(settings):
        if choice.root_key is not None:
            return choice.root_key, str(path)
    return None, ""


def committed_root_key(data: bytes, where: str) -> str | None:
    """Return the bus owner's key in the bytes of a committed `kakeya.toml`, None where it names none.

    Raises:
        UsageError: it is malformed.
    """
    return _text(_table(data, where), "root_key", where)


def _own_files(settings: ClientSettings) -> Iterator[tuple[Path, BusChoice]]:
    """Yield this clone's own file and the user's, as far as they name a bus."""
    for path, source in _own_paths(settings.repository, settings.config_dir):
        if (choice := _from_file(path, source)) is not None:
            yield path, choice


def _own_paths(repository: Repository | None, config_dir: Path) -> list[tuple[Path, Source]]:
    """Return the files that are nobody else's: this clone's, then the user's."""
    clone: list[tuple[Path, Source]] = [] if repository is None else [(repository.common_dir / FILE_NAME, "clone")]
    return [*clone, (config_dir / USER_FILE_NAME, "user")]


def committed_keys(data: bytes, where: str) -> tuple[str, ...]:
    """Return the keys in the bytes of a committed `kakeya.toml`.

    Raises:
        UsageError: it is malformed.
    """
    return _keys(_table(data, where), where)


def candidates(settings: ClientSettings) -> list[PlaceRow]:
    """Return every place that is looked at, in order."""
    repository = settings.repository
    places: list[tuple[Source, str]] = [("--bus", "option"), ("KAKEYA_BUS", "environment variable")]
    if repository is not None:
        places.append(("clone", str(repository.common_dir / FILE_NAME)))
        places.append(("committed", str(repository.top / FILE_NAME)))
    places.append(("user", str(settings.config_dir / USER_FILE_NAME)))
    places.append(("embedded", str(settings.data_dir)))
    return [PlaceRow(source, where, source == settings.bus.source) for source, where in places]


def parse_route(text: str, source: Source, where: str) -> BusChoice:
    """Return the choice of a ``ROUTE[#ID]`` text.

    Raises:
        UsageError: empty, with user information in the URL, beginning with a dash, or with a malformed id.
    """
    route, mark, bus_id = text.partition("#")
    if mark and _BUS_ID.fullmatch(bus_id) is None:
        raise UsageError(f"{where}: got bus id {bus_id[:64]!r}; expected 32 hexadecimal digits after '#'")
    is_path = "/" in route and "://" not in route
    least = 32 if is_path and route == route.strip() else 33  # a folder's name may hold spaces
    if not route or route.startswith("-") or any(ord(char) < least for char in route):
        raise UsageError(f"{where}: got route {route[:200]!r}; expected a remote name, a path or a URL")
    if route.startswith("ext::") or "::" in route.split("/", 1)[0]:
        raise UsageError(f"{where}: remote helpers such as {route[:40]!r} are not used; give an https, ssh or file URL")
    if re.match(r"https?://[^/]*@", route):
        raise UsageError(
            f"{where}: the URL carries user information, which would end up in records",
            remedy="leave it out and let git's credential helper answer",
        )
    if re.fullmatch(r"ssh://[^/]+/?", route):
        route = f"{route.rstrip('/')}/{SSH_REPOSITORY}"
    if route == EMBEDDED:
        return BusChoice(source, where)
    return BusChoice(source, where, route=route, bus_id=bus_id or None)


def ssh_route(via: str, bus: str | None) -> str:
    """Return the route that `--via` means: the bus of a host that is reachable over ssh.

    Raises:
        UsageError: it is no ssh URL, or a bus is named as well.
    """
    if bus is not None:
        raise UsageError("--bus and --via name two places", remedy="give one of them")
    match = _VIA.fullmatch(via)
    if match is None or int(match["port"] or 22) > _PORT_MOST:
        raise UsageError(f"--via: got {via[:200]!r}; expected ssh://USER@HOST[:PORT][#ID]")
    return via


def _from_text(text: str | None, source: Source, where: str) -> BusChoice | None:
    if text is None or (not text and source != "--bus"):
        return None
    return parse_route(text, source, where)


def _from_option(text: str | None, directory: Path) -> BusChoice | None:
    """Return the choice of ``--bus``; a path is one of the folder that it was typed in, as a shell completes it."""
    choice = _from_text(text, "--bus", "--bus")
    if choice is None or choice.route is None or "/" not in choice.route or Path(choice.route).is_absolute():
        return choice
    path = (directory / choice.route).resolve()
    named = path.is_dir() and "#" not in str(path)  # what is behind a # is the id of a bus
    return replace(choice, route=str(path)) if named else choice


def _from_file(path: Path, source: Source) -> BusChoice | None:
    table = _load(path)
    if table is None:
        return None
    try:
        return _choice(table, path, source)
    except UsageError as error:
        error.remedy = error.remedy or f"correct or remove it in {path}"
        raise


def _choice(table: Mapping[str, Any], path: Path, source: Source) -> BusChoice | None:
    """Return the bus that the table of a file names.

    Raises:
        UsageError: the table has a mistake.
    """
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise UsageError(f"{path}: unknown key {unknown[0]!r}; {meant(unknown[0], sorted(_KEYS))}")
    if table.get("schema") != 1:
        raise UsageError(f"{path}: got schema = {table.get('schema')!r}; this version reads schema = 1")
    if source == "committed" and (mine := sorted((_SIGNING_KEYS | {_IDENTITY}) & set(table))):
        raise UsageError(f"{path}: {mine[0]} is everybody's own choice", remedy=f"kakeya-mac init writes it; {path}")
    bus_id, route = _text(table, "bus_id", path), _text(table, "route", path)
    if bus_id is None and route is None:
        return None
    if bus_id is not None and _BUS_ID.fullmatch(bus_id) is None:
        raise UsageError(f"{path}: got bus_id = {bus_id[:64]!r}; expected 32 hexadecimal digits")
    template = _text(table, "branch_template", path)
    if template is not None:
        check_template(template, str(path))
    base = parse_route(route, source, str(path)) if route is not None else BusChoice(source, str(path))
    root_key = _text(table, "root_key", path)
    return BusChoice(source, str(path), base.route, bus_id, template, _keys(table, path), root_key)


def _signing(path: Path) -> SigningChoice | None:
    """Return the signing key a clone's or a user's own file names."""
    table = _load(path) or {}
    key, principal = _text(table, "signing_key", path), _text(table, "principal", path)
    if key is None:
        return None
    if key != OFF and principal is None:
        raise UsageError(f"{path}: signing_key needs a principal", remedy="kakeya-mac init --principal NAME")
    return SigningChoice(key, principal or "")


def _identity(path: Path) -> IdentityChoice | None:
    """Return who commits, as a clone's or a user's own file says it.

    Raises:
        UsageError: the file is malformed, or the name is none.
    """
    table = (_load(path) or {}).get(_IDENTITY)
    if table is None:
        return None
    if not isinstance(table, dict) or not set(table) <= _IDENTITY_KEYS:
        raise UsageError(f"{path}: [{_IDENTITY}] holds {' and '.join(sorted(_IDENTITY_KEYS))}, got {table!r:.80}")
    return check_identity(_text(table, "committer", path), _text(table, "message_prefix", path) or "", str(path))


def check_identity(committer: str | None, message_prefix: str, where: str) -> IdentityChoice:
    """Return who commits.

    Raises:
        UsageError: that is no ``NAME <ADDRESS>``, or one of the two has line breaks.
    """
    from bridge.system.gitobjects import committer_from

    try:
        committer_from(committer, message_prefix)
    except ValueError as error:
        raise UsageError(f"{where}: {error}", remedy="kakeya-mac init --commit-as 'NAME <ADDRESS>'") from error
    return IdentityChoice(committer, message_prefix)


def check_template(template: str, where: str) -> None:
    """Refuse a branch template that cannot carry a preset and an id.

    Raises:
        UsageError: it does not read ``…{preset}-{id}…``.
    """
    if _TEMPLATE.fullmatch(template) is None or ".." in template or "//" in template:
        raise UsageError(
            f"{where}: got branch_template = {template[:120]!r}; expected something like 'mac-bridge/{{preset}}-{{id}}'"
        )


def _keys(table: Mapping[str, Any], path: Path | str) -> tuple[str, ...]:
    keys = table.get("runner_keys", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise UsageError(f"{path}: runner_keys is a list of texts")
    return tuple(keys)


def _text(table: Mapping[str, Any], key: str, path: Path | str) -> str | None:
    value = table.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise UsageError(f"{path}: {key} is a text, got {value!r}")
    return value


def _load(path: Path) -> dict[str, Any] | None:
    """Return the table of a file, None where there is no such name; a name that is no file is a mistake of somebody."""
    if path.is_file():
        return _table(path.read_bytes(), str(path))
    if os.path.lexists(path):
        raise UsageError(f"{path}: it is no file that can be read", remedy=f"put a file there, or remove {path}")
    return None


def _table(data: bytes, path: str) -> dict[str, Any]:
    if len(data) > FILE_MAX_BYTES:
        text = f"{path}: {len(data)} bytes; a configuration has at most {FILE_MAX_BYTES}"
        raise UsageError(text, remedy=f"correct or remove {path}")
    if not data:
        return {}
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}", remedy=f"correct or remove {path}") from error


def _user_dirs(environment: Mapping[str, str]) -> tuple[Path, Path]:
    data, config = environment.get("KAKEYA_DATA_DIR"), environment.get("KAKEYA_CONFIG_DIR")
    if not (data and config):
        import platformdirs

        data = data or platformdirs.user_data_dir("kakeya")
        config = config or platformdirs.user_config_dir("kakeya")
    return Path(data).absolute(), Path(config).absolute()  # git is called in other folders than this one


def write_clone_config(
    settings: ClientSettings,
    choice: BusChoice,
    signing: SigningChoice | None = None,
    identity: IdentityChoice | None = None,
) -> Path:
    """Write `<git common dir>/kakeya.toml` (the user config outside of a clone) and return its path, atomically."""
    import json

    from bridge.system.durable import write_atomically

    repository = settings.repository
    path = settings.config_dir / USER_FILE_NAME if repository is None else repository.common_dir / FILE_NAME
    signs = signing is not None and signing.key != OFF
    values = {
        "route": choice.route, "bus_id": choice.bus_id, "branch_template": choice.branch_template,
        "root_key": choice.root_key, "signing_key": signing and signing.key,
        "principal": signing.principal if signing and signs else None, "runner_keys": choice.runner_keys,
    }  # fmt: skip
    tables = {"": values, f"[{_IDENTITY}]": {} if identity is None else vars(identity)}
    lines = ["# Written by `kakeya-mac init`. Not committed: it is this clone's own choice.", "schema = 1"]
    for head, table in tables.items():
        texts = {key: value for key, value in table.items() if value}
        lines += [head] if head and texts else []
        # A text, or a list of texts, is the same in JSON and in TOML.
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in texts.items()]
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    return path
