"""Files that a run kept, on its page: pictures as data, never as markup; what is too large is named."""

from __future__ import annotations

from bridge.client.page.pictures import PICTURE_MAX_BYTES, kept_files, kind_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
SCRIPTED = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def test_a_picture_is_known_by_its_bytes_and_not_by_its_name():
    kinds = [kind_of(data) for data in (PNG, b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF....WEBP", SCRIPTED, b"<html>", b"")]
    assert kinds == ["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml", None, None]


def test_an_svg_with_a_script_is_an_image_and_no_markup():
    shown = "".join(kept_files({'r/"x" onload=y.svg': SCRIPTED}))
    assert "<script" not in shown
    assert "<svg" not in shown
    assert '<img alt="r/&quot;x&quot; onload=y.svg" src="data:image/svg+xml;base64,' in shown


def test_what_is_too_large_for_a_page_is_listed_with_the_others():
    files = {"a.png": PNG, "large.png": PNG + bytes(PICTURE_MAX_BYTES), "t.csv": b"1,2\n"}
    shown = "".join(kept_files(files))
    assert shown.count("<img") == 1
    assert "large.png" in shown
    assert "too large for a page" in shown
    assert "t.csv" in shown


def test_many_pictures_stay_within_a_page():
    many = {f"{at}.png": PNG + bytes(150_000) for at in range(20)}
    assert len("".join(kept_files(many))) < 800_000
