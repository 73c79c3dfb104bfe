"""What Kakeya signs is read by programs that are not Kakeya: python-tuf and OpenSSH; DSSE and in-toto are in
tests/unit/bridge/publish/test_attestation.py."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from tuf.api.metadata import Metadata, Root, Targets

from tests.unit.bridge.trust.stage import Stage


def test_python_tuf_verifies_every_version_of_a_root_and_what_it_lists(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    files = Stage(tmp_path).files
    trusted = Metadata[Root].from_bytes(files["1.root.json"]).signed
    for number in (1, 2):
        root = Metadata[Root].from_bytes(files[f"{number}.root.json"])
        trusted.verify_delegate("root", root.signed_bytes, root.signatures)  # by the version before
        root.signed.verify_delegate("root", root.signed_bytes, root.signatures)  # and by itself
        trusted = root.signed
    targets = Metadata[Targets].from_bytes(files["targets.json"])
    trusted.verify_delegate("targets", targets.signed_bytes, targets.signatures)
    assert set(targets.signed.targets) == {"allowed_signers", "bus.json", "revoked", "runners"}
    for name, target in targets.signed.targets.items():
        target.verify_length_and_hashes(files[name])
        assert target.hashes["sha256"] == hashlib.sha256(files[name]).hexdigest()


@pytest.mark.needs("ssh-keygen")
def test_ssh_keygen_verifies_a_request_by_the_list_in_the_root(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    stage = Stage(tmp_path)
    (tmp_path / "list").write_bytes(stage.files["allowed_signers"])
    (tmp_path / "request.json.sig").write_bytes(stage.ssh("alice", stage.request.canonical()))
    argv = ["ssh-keygen", "-Y", "verify", "-n", "kakeya-request-v1", "-f", str(tmp_path / "list"),
            "-s", str(tmp_path / "request.json.sig")]  # fmt: skip
    codes = [subprocess.run([*argv, "-I", name], input=stage.request.canonical(), capture_output=True, check=False)
             .returncode for name in ("alice", "bob")]  # fmt: skip
    assert codes == [0, 255]
