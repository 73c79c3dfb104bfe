"""Results of this user's own machine verify from each of the user's environments."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from bridge.bus.open.embedded import embedded_folder
from bridge.client.clone.config import discover
from bridge.client.clone.packed import read_packed
from bridge.client.connection.pins import pins
from bridge.trust.attestation import ATTESTATION_FILE
from bridge.trust.judgement import KeyAuthority, NamedKey
from bridge.trust.runner_key import generate
from bridge.trust.verifier import judge_result

EVIDENCE = Path(__file__).parents[4] / "docs" / "evidence"
LINE_FIT_KEY = "EaVJNauRZ6F0xbgANtk029MOaeX00+Wf4nZ8ipifGpM="
"""The key that docs/evidence/README.md gives beside the result."""


def test_the_keys_of_all_environments_of_a_user_count_with_this_ones_first(tmp_path):
    data = tmp_path / "data"
    own, other = embedded_folder(data), data / "embedded" / ("0" * 16)
    keys = [generate(folder / "runner", "embedded") for folder in (other, own)]
    settings = discover(tmp_path, {"KAKEYA_DATA_DIR": str(data), "HOME": str(tmp_path)})
    authority = pins(settings).authority
    assert [listed.key for listed in authority.keys] == [keys[1].public, keys[0].public]


def test_another_machines_embedded_runner_is_one_whose_key_is_not_pinned_and_not_a_forgery(tmp_path):
    folder = embedded_folder(tmp_path)
    generate(folder / "runner", "embedded")
    settings = discover(tmp_path, {"KAKEYA_DATA_DIR": str(tmp_path), "HOME": str(tmp_path)})
    files = read_packed(EVIDENCE / "line-fit.tar.xz").files
    elsewhere = judge_result(files, pins(settings).authority).answer
    assert (elsewhere.shown, elsewhere.refused) == ("key not pinned", False)
    # What names a key of this machine was signed with it, or nobody signed it.
    own = KeyAuthority((NamedKey("embedded", LINE_FIT_KEY),), where="this machine's own runner", closed=False)
    assert judge_result(files, own).answer.word == "verified"
    envelope = json.loads(files[ATTESTATION_FILE])
    envelope["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    forged = files | {ATTESTATION_FILE: json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode()}
    assert judge_result(forged, own).answer.word == "untrusted"
