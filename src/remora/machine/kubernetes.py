"""The Kubernetes that this pod runs in, asked with the credentials that every pod is given: one question, one answer."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remora.errors import ControllerError

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_SECONDS = 5
_HINTS = {
    403: "its service account may not: the role needs get on rayclusters, which KubeRay gives where it autoscales",
    404: "there is none of that name",
}


def namespace(environ: Mapping[str, str], folder: Path = FOLDER) -> str:
    """Return the namespace of this pod."""
    return environ.get("RAY_CLUSTER_NAMESPACE") or (folder / "namespace").read_text(encoding="utf-8").strip()


def ray_cluster(name: str, where: str, environ: Mapping[str, str], folder: Path = FOLDER) -> dict[str, Any]:
    """Return the RayCluster of this name as Kubernetes has it; raise a ``ControllerError`` that says why not."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    origin = host if "://" in host else f"https://{f'[{host}]' if ':' in host else host}:{port}"
    url = f"{origin}/apis/ray.io/v1/namespaces/{where}/rayclusters/{name}"
    try:
        # Read again each time: the token is changed every hour.
        token = (folder / "token").read_text(encoding="utf-8").strip()
        trusted = ssl.create_default_context(cafile=str(folder / "ca.crt")) if url.startswith("https") else None
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_SECONDS, context=trusted) as reply:
            found = json.load(reply)
    except urllib.error.HTTPError as error:
        why = _HINTS.get(error.code, error.reason)
        raise ControllerError(f"the RayCluster {where}/{name} cannot be read ({error.code}): {why}") from None
    except (OSError, ValueError) as error:
        raise ControllerError(f"the RayCluster {where}/{name} cannot be read ({error})") from None
    if not isinstance(found, dict) or "spec" not in found:
        raise ControllerError(f"the RayCluster {where}/{name} cannot be read: what {url} answers is none")
    return found
