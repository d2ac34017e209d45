import pytest
from tests.unit.controller.worlds import World


@pytest.fixture
def world() -> World:
    return World()
