"""What people see of an artifact, whatever its parts hold."""

import numpy as np

from prefect_tune.storage.cache.preview import preview


def test_an_empty_array_can_be_looked_at() -> None:
    assert preview(np.empty(0))
    assert preview(np.arange(3.0))
