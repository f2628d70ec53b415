"""Files of a folder that browsers may get."""

from pathlib import Path

import pytest

from gateway_api.web import app as application
from gateway_api.web.routes import pages
from gateway_api.web.routes.pages import find_files, is_inside
from tests.unit.gateway_api.test_operation import parts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "pages"
    (made / "below").mkdir(parents=True)
    for name in ("index.html", "below/part.js", "note.txt"):
        (made / name).write_text("x")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.html").write_text("secret")
    return made


def test_files_of_known_types_are_found_by_their_paths(folder: Path) -> None:
    assert find_files(folder) == {
        "below/part.js": folder / "below/part.js",
        "index.html": folder / "index.html",
    }


@pytest.mark.parametrize("way", ["absolute", "relative", "over another link"])
def test_a_link_to_a_file_outside_is_left_out(folder: Path, way: str) -> None:
    link, key = folder / "key.html", folder.parent / "secret" / "key.html"
    if way == "over another link":
        (folder / "note.lnk").symlink_to(key)
        link.symlink_to("note.lnk")
    else:
        link.symlink_to(key if way == "absolute" else "../secret/key.html")
    assert link.read_text() == "secret"
    assert "key.html" not in find_files(folder)


def test_a_link_to_a_folder_outside_is_left_out(folder: Path) -> None:
    (folder / "more").symlink_to(folder.parent / "secret")
    assert (folder / "more" / "key.html").exists()
    assert sorted(find_files(folder)) == ["below/part.js", "index.html"]


def test_a_link_within_the_folder_is_a_file_of_it(folder: Path) -> None:
    (folder / "start.html").symlink_to("index.html")
    assert "start.html" in find_files(folder)


def test_a_folder_may_be_a_link_itself(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert sorted(find_files(link)) == ["below/part.js", "index.html"]


def test_a_file_that_became_a_link_no_longer_lies_in_its_folder(folder: Path) -> None:
    index = folder / "index.html"
    assert is_inside(folder, index)
    index.unlink()
    index.symlink_to("../secret/key.html")
    assert not is_inside(folder, index)


@pytest.mark.parametrize("path", ["/docs/", "/docs/tutorial/first-change.html"])
def test_documentation_that_is_not_built_says_what_to_do_to_browsers_and_programs(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_DOCUMENTATION_FILES", {})
    client = application.create_app(parts(tmp_path)).test_client()
    page = client.get(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (page.status_code, page.content_type) == (404, "text/html; charset=utf-8")
    refused = client.get(path, headers={"Accept": "*/*"})
    assert (refused.status_code, refused.get_json()["status"]) == (404, "error")
    for text in (page.text, refused.get_json()["message"]):
        assert "Run make docs in the folder of the source, then restart the API." in text
        assert "docs/index.md" in text


def test_the_command_line_in_one_file_is_served_unchanged_beside_its_checksum(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "gatewayctl.pyz").write_bytes(b"#!/usr/bin/env python3\nPK" + bytes(1000))
    (folder / "gatewayctl.pyz.sha256").write_text("0a  gatewayctl.pyz\n")
    monkeypatch.setattr(pages, "BUILT_FOLDER", folder)
    monkeypatch.setattr(pages, "_DOCUMENTATION_FILES", find_files(folder))
    client = application.create_app(parts(tmp_path)).test_client()
    file = client.get("/docs/gatewayctl.pyz", headers={"Accept-Encoding": "gzip"})
    assert (file.status_code, file.content_type) == (200, "application/octet-stream")
    assert file.data == (folder / "gatewayctl.pyz").read_bytes()
    assert "Content-Encoding" not in file.headers
    again = client.get("/docs/gatewayctl.pyz", headers={"If-None-Match": file.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    checksum = client.get("/docs/gatewayctl.pyz.sha256")
    assert (checksum.content_type, checksum.text) == ("text/plain; charset=utf-8", "0a  gatewayctl.pyz\n")
