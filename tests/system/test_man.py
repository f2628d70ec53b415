"""The man pages are readable by man."""

import subprocess

from tools.documents.pages import generate_man_pages


def test_roff_has_nothing_to_complain_about() -> None:
    for name, text in generate_man_pages().items():
        said = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, capture_output=True, text=True, check=True
        )
        assert said.stderr == "", name
