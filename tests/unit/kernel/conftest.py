"""Every SimCluster that a test here makes is recounted at its end, whether the test asks for it or not."""

import pytest

from remora.sim import SimCluster


@pytest.fixture(autouse=True)
def _every_cluster_is_recounted(monkeypatch):
    made = []
    init = SimCluster.__init__

    def remember(self, seed=0):
        init(self, seed)
        made.append(self)

    monkeypatch.setattr(SimCluster, "__init__", remember)
    yield
    for cluster in made:
        cluster.validate()
