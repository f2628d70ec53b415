"""The man pages are readable by man."""

import subprocess

from tools.documents.man import pages


def test_roff_has_nothing_to_complain_about() -> None:
    for name, text in pages().items():
        said = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, capture_output=True, text=True, check=True
        )
        assert said.stderr == "", name
