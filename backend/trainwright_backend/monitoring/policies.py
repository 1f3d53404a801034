"""Policy of `GET /metrics`: a token that the operator sets, for the server that scrapes."""

import hmac

from fastapi import Request

from trainwright_backend.core.errors import NotFound, Unauthorized
from trainwright_backend.core.policy import Policy


class HasMetricsToken(Policy):
    """Admits bearers of `Settings.metrics_token`; nobody if it is not set."""

    async def __call__(self, request: Request) -> None:
        self.check(request)

    def check(self, request: Request) -> None:
        token = request.app.state.settings.metrics_token
        if token is None:
            raise NotFound(
                "This server shows no metrics: its operator has not set TRAINWRIGHT_METRICS_TOKEN."
            )
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), token.get_secret_value().encode())
        if scheme.lower() != "bearer" or not right:
            raise Unauthorized("Send the token of TRAINWRIGHT_METRICS_TOKEN as a bearer token.")
