"""Ray's own token authentication: whether it is on here, and whether somebody has the token."""

from __future__ import annotations

from ray._private.authentication import authentication_utils


def is_token_needed() -> bool:
    """Return whether Ray's token authentication is on for this process."""
    return bool(authentication_utils.is_token_auth_enabled())


def is_right_token(header: str) -> bool:
    """Return whether ``Bearer TOKEN`` names the token of this cluster."""
    return bool(authentication_utils.validate_request_token(header))
