"""GCS's internal KV: what is remembered there for every process of the cluster."""

from __future__ import annotations

from typing import Any

import ray

_NAMESPACE = b"remora"


class Kv:
    """Over the process's own GCS client, or another."""

    def __init__(self, gcs_client: Any = None) -> None:
        self._gcs = gcs_client if gcs_client is not None else ray._private.worker.global_worker.gcs_client

    def put(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._gcs.internal_kv_del(key.encode(), False, _NAMESPACE)
        else:
            self._gcs.internal_kv_put(key.encode(), value, True, _NAMESPACE)

    def get(self, key: str) -> bytes | None:
        value: bytes | None = self._gcs.internal_kv_get(key.encode(), _NAMESPACE)
        return value

    def keys(self, prefix: str) -> list[str]:
        return sorted(key.decode() for key in self._gcs.internal_kv_keys(prefix.encode(), _NAMESPACE))
