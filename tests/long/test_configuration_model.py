"""The workflow of the configuration beside its model, in more sequences than `make test` has time for."""

import os
from pathlib import Path

import pytest

from tests.unit.gateway_core.test_configuration_model import run_sequences


def test_a_workspace_does_as_its_model_in_2000_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    run_sequences(2000, tmp_path)
