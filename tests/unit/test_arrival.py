"""What a worker pays when the layer arrives, that it is there at once, and that it can be taken out: no cluster is needed."""

import pickle
import subprocess
import sys

import pytest
import ray
from ray._common import ray_option_utils
from ray.actor import ActorClass, ActorHandle
from ray.remote_function import RemoteFunction

import remora
from remora.live import installed, names
from remora.live.attach import install, travel
from remora.live.inspect import narrow
from remora.wire.rewrite import Defaults

PACKED = pickle.dumps(Defaults.parse(tolerations={"night": "true"}))


def double(number: int) -> int:
    return 2 * number


def replaced() -> dict[str, object]:
    """Everything of Ray that the layer replaces, as it is now."""
    groups = sys.modules["ray.util.placement_group"]
    return {
        "task": RemoteFunction._remote,
        "actor": ActorClass._remote,
        "pickle": sys.modules["ray.remote_function"].pickle_dumps,
        "views": [sys.modules[name].ray for name in ("ray.remote_function", "ray.actor", "ray.util.placement_group")],
        "groups": [groups.placement_group, groups.remove_placement_group, ray.util.placement_group],
        "events": ray._private.worker.filter_autoscaler_events,
        "handle": vars(ActorHandle).get("remora_id"),
        **{name: getattr(ray_option_utils, name) for name in ("task_options", "actor_options", "valid_options")},
    }


@pytest.fixture
def arrived():
    install.arrive(PACKED)
    yield installed.current()
    install.uninstall()


def test_what_arrives_in_a_worker_imports_nothing_that_decides():
    code = """
import pickle, sys
import ray
pickle.loads(bytes.fromhex(sys.argv[1]))
print(sorted(name for name in sys.modules if name.startswith("remora.")))
"""
    data = pickle.dumps(travel.Luggage(len, PACKED)).hex()
    done = subprocess.run([sys.executable, "-c", code, data], capture_output=True, text=True, check=True)
    loaded = done.stdout
    assert "'remora.live.attach.install'" in loaded
    for heavy in (
        "model.selectors",
        "model.strategies",
        "wire.rewrite",
        "wire.classes",
        "live.submit.submitter",
        "port.contract",
    ):
        assert f"'remora.{heavy}'" not in loaded


def test_the_layer_is_there_before_the_function_is_unpickled():
    try:
        assert pickle.loads(pickle.dumps(travel.Luggage(_Asks(), PACKED))).__wrapped__() is True
    finally:
        install.uninstall()


class _Asks:
    def __reduce__(self):
        return _seen, ()


def _seen():
    there = installed.current() is not None

    def answer() -> bool:
        return there

    return answer


def test_what_arrived_decides_with_the_defaults_that_came_along(arrived):
    assert arrived.submitter.defaults == pickle.loads(PACKED)
    assert arrived.submitter is arrived.submitter


def test_new_options_are_accepted_and_checked_where_the_layer_arrived(arrived):
    ray.remote(tolerations={"gpu": "exists()"})(double)
    with pytest.raises(remora.InvalidTaintError):
        ray.remote(double).options(tolerations={"-": "x"})
    with pytest.raises(remora.InvalidResourceError):
        ray.remote(double).options(resources={"remora/class/x": 1})


def test_everything_is_put_back():
    before = replaced()
    install.arrive(PACKED)
    assert not before.items() <= replaced().items()
    install.uninstall()
    assert replaced() == before
    with pytest.raises(ValueError, match="tolerations"):
        ray.remote(double).options(tolerations={"gpu": "exists()"})


def test_an_installation_that_fails_on_the_way_leaves_everything_as_it_was(monkeypatch):
    def fail():
        raise RuntimeError("on the way")

    monkeypatch.setattr(narrow, "replacements", fail)
    before = replaced()
    with pytest.raises(RuntimeError, match="on the way"):
        install.arrive(PACKED)
    assert installed.current() is None
    assert replaced() == before


# -------------------------------------------------------------------------------------------------------- private names


def test_this_ray_has_every_name():
    names.probe()


def without(monkeypatch: pytest.MonkeyPatch, kind: type, attribute: str) -> None:
    """What is made of the class lacks an attribute."""

    def look(self, name: str):
        if name == attribute:
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(kind, "__getattribute__", look)


def test_an_attribute_that_remote_functions_no_longer_have_is_named(monkeypatch):
    without(monkeypatch, RemoteFunction, "_last_export_cluster_and_job")
    with pytest.raises(remora.IncompatibleRayError, match=r"RemoteFunction\._last_export_cluster_and_job is missing"):
        names.probe()


@pytest.mark.parametrize("attribute", ["last_export_cluster_and_job", "class_name", "is_cross_language"])
def test_an_attribute_that_actor_classes_no_longer_have_is_named(monkeypatch, attribute):
    without(monkeypatch, sys.modules["ray.actor"]._ActorClassMetadata, attribute)
    with pytest.raises(remora.IncompatibleRayError, match=rf"ActorClass\.__ray_metadata__\.{attribute} is missing"):
        names.probe()


def test_a_handle_that_no_longer_says_its_id_is_named(monkeypatch):
    monkeypatch.delattr(ActorHandle, "_actor_id")
    with pytest.raises(remora.IncompatibleRayError, match=r"ActorHandle\._actor_id is missing"):
        names.probe()
