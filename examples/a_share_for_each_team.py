"""A virtual cluster for each team: a part of the cluster that it is sure of, and a limit that it can't cross."""

import time
from concurrent.futures import ThreadPoolExecutor

import ray
from _cluster import cluster

import remora
from remora import VirtualCluster

Span = tuple[float, float]


@ray.remote
def span() -> Span:
    began = time.monotonic()
    time.sleep(0.5)
    return began, time.monotonic()


def most_at_once(spans: list[Span]) -> int:
    return max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)


def team(name: str, least: int, most: int) -> str:
    with VirtualCluster(flexible_resource_min={"CPU": least}, flexible_resource_max={"CPU": most}):
        spans = ray.get([span.remote() for _ in range(8)])
    return f"{name}: at least {least} CPU, at most {most}; at any time it used {most_at_once(spans)} or less"


with cluster():
    with ThreadPoolExecutor() as pool:
        for line in pool.map(team, ("red", "blue"), (1, 2), (1, 3)):
            print(line)

    # A minimum is reserved as a whole; who can't have it now waits in a queue. Inside, the share is all that there is.
    with VirtualCluster(flexible_resource_min={"CPU": 4}):
        print("inside there are", remora.current_cluster().total_resources()["CPU"], "CPUs")
        with VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1}):
            print("and inside of that", remora.current_cluster().total_resources()["CPU"])
