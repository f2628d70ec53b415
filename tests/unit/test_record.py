"""What the audit log keeps of a request."""

from typing import Any

import pytest

from gateway_api.audit.record import masked
from gateway_api.base.logs import MASK


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_secret_is_masked_in_every_object_of_an_array(kind: Any) -> None:
    assert masked(kind([{"secret": "hidden", "name": "a"}])) == [{"secret": MASK, "name": "a"}]
