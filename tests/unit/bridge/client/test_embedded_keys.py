"""Results of this user's own machine verify from each of the user's environments."""

from __future__ import annotations

from bridge.bus.open.embedded import embedded_folder
from bridge.client.clone.config import discover
from bridge.client.connection.pins import pins
from bridge.trust.runner_key import generate


def test_the_keys_of_all_environments_of_a_user_count_with_this_ones_first(tmp_path):
    data = tmp_path / "data"
    own, other = embedded_folder(data), data / "embedded" / ("0" * 16)
    keys = [generate(folder / "runner", "embedded") for folder in (other, own)]
    settings = discover(tmp_path, {"KAKEYA_DATA_DIR": str(data), "HOME": str(tmp_path)})
    authority = pins(settings).authority
    assert [listed.key for listed in authority.keys] == [keys[1].public, keys[0].public]
