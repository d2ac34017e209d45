"""``ray.util.state`` as a virtual cluster sees it: only what belongs to it, and its virtual nodes; outside of one, without the
controller. Labels are those that hold now.

Everything that the state API is asked goes through one method of its client. There is no filter for virtual clusters on the
server, so as many rows as one may have are asked for, and the limit is applied after ours.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from remora.live.adapter import labels_now
from remora.live.inspect import tree_cache
from remora.live.inspect.narrow import viewed
from remora.live.inspect.ownership import Belonging, belonging_to
from remora.live.inspect.tree_cache import Row, Tree, tree_of
from remora.live.link import CONTROLLER, NAMESPACE
from remora.model.resources import TOKEN_PREFIX

_API = "/api/v0/"
_FILTERS = ("filter_keys", "filter_predicates", "filter_values")

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
Answer = dict[str, Any]


def narrowed(client: Any) -> Any:
    stock = client._make_http_get_request

    @functools.wraps(stock)
    def _make_http_get_request(
        self: Any, endpoint: str, params: Mapping[str, Any], timeout: float, _explain: bool = False
    ) -> Answer:
        def ask(endpoint: str, params: Mapping[str, Any]) -> Answer:
            answer: Answer = stock(self, endpoint=endpoint, params=params, timeout=timeout, _explain=_explain)
            return answer

        cluster_id = viewed()
        tree = tree_of(cluster_id)
        what = endpoint.removeprefix(_API)
        if cluster_id is None or tree is None or cluster_id not in tree.by_id:
            answer = _whole(ask, what, params)
        else:
            answer = _View(ask, cluster_id, tree).answer(what, params)
        shown: Answer = _plain(answer)
        return shown

    return _make_http_get_request


def _whole(ask: Ask, what: str, params: Mapping[str, Any]) -> Answer:
    """What there is in the whole cluster, but for the controller, and with the labels that hold now."""
    if what == "actors":
        answer = ask(_API + what, {**params, "limit": min(int(params.get("limit", _most())) + _OURS, _most())})
        return _limited(answer, [row for row in answer["result"] if not _is_controller(row)], params)
    if what == "actors/summarize":
        return _summarized("actors", _whole(ask, "actors", {"limit": _most()}))
    answer = ask(_API + what, params)
    if what == "nodes":
        said = labels_now.overrides()
        for row in answer["result"]:
            row["labels"] = labels_now.shown(row.get("labels") or {}, said.get(row["node_id"]))
    return answer


def _is_controller(row: Row) -> bool:
    return (row.get("ray_namespace"), row.get("name")) == (NAMESPACE, CONTROLLER)


_OURS = 8  # controllers that there are or were


class _View:
    def __init__(self, ask: Ask, cluster_id: str, tree: Tree) -> None:
        self._ask = ask
        self._cluster_id = cluster_id
        self._tree = tree

    def answer(self, what: str, params: Mapping[str, Any]) -> Answer:
        """To one question: rows of a table, or their summary."""
        table, _, verb = what.partition("/")
        if verb == "summarize":
            return self._summary(table)
        if table == "nodes":
            return self._nodes(params)
        if table not in _KEEP:
            return self._ask(_API + what, params)
        return self._rows(table, params)

    def _rows(self, table: str, params: Mapping[str, Any]) -> Answer:
        mine = belonging_to(self._cluster_id, self._tree)
        answer = self._ask(_API + table, {**params, "limit": _most()})
        return _limited(answer, [row for row in answer["result"] if _KEEP[table](mine, row)], params)

    def _nodes(self, params: Mapping[str, Any]) -> Answer:
        """Filters are for us: the server knows no virtual nodes."""
        unfiltered = {name: value for name, value in params.items() if name not in _FILTERS}
        answer = self._ask(_API + "nodes", {**unfiltered, "limit": _most()})
        hosts = {row["node_id"]: row for row in answer["result"]}
        rows = [
            {**hosts[node["NodeID"]], "labels": node["Labels"], "resources_total": node["Resources"]}
            for node in tree_cache.node_table(self._cluster_id)
            if node["NodeID"] in hosts
        ]
        filters = list(zip(*(params.get(name, ()) for name in _FILTERS), strict=True))
        return _limited(answer, [row for row in rows if all(_passes(row, *each) for each in filters)], params)

    def _summary(self, table: str) -> Answer:
        return _summarized(table, self._rows(table, {"limit": _most()}))


def _summarized(table: str, answer: Answer) -> Answer:
    from ray.util.state.common import ActorSummaries, ObjectSummaries, TaskSummaries

    rows = answer["result"]
    if table == "tasks":
        summary = TaskSummaries.to_summary_by_func_name(tasks=rows)
    elif table == "actors":
        summary = ActorSummaries.to_summary(actors=rows)
    else:
        summary = ObjectSummaries.to_summary(objects=rows)
    return {**answer, "result": {"node_id_to_summary": {"cluster": dataclasses.asdict(summary)}}}


_KEEP: dict[str, Callable[[Belonging, Row], bool]] = {
    "tasks": lambda mine, row: mine.has_task(row["task_id"]),
    "actors": lambda mine, row: mine.has_actor(row["actor_id"]),
    "placement_groups": lambda mine, row: mine.has_group(row["placement_group_id"]),
    "objects": lambda mine, row: mine.has_object(row["object_id"]),
    "workers": lambda mine, row: mine.has_worker(row["worker_id"]),
    "jobs": lambda mine, row: row["job_id"] == mine.job_id,
}


def _limited(answer: Answer, rows: list[Any], params: Mapping[str, Any]) -> Answer:
    return {**answer, "num_filtered": len(rows), "result": rows[: int(params.get("limit", len(rows)))]}


def _passes(row: Row, key: str, predicate: str, value: Any) -> bool:
    """As the server compares: as text, whatever the case."""
    return (str(row.get(key)).lower() == str(value).lower()) == (predicate == "=")


def _plain(value: Any) -> Any:
    """Without tokens, however deep; without the events that are about nothing else."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if not str(key).startswith(TOKEN_PREFIX)}
    if isinstance(value, list):
        return [_plain(inner) for inner in value if not _is_about_tokens(inner)]
    return value


def _is_about_tokens(row: Any) -> bool:
    return isinstance(row, dict) and "event_id" in row and TOKEN_PREFIX in str(row.get("message"))


def _most() -> int:
    from ray.util.state.common import RAY_MAX_LIMIT_FROM_API_SERVER

    return int(RAY_MAX_LIMIT_FROM_API_SERVER)
