"""The agent protocol over HTTP, with the API's refusals as exception types.

It uses the standard library, because a supervisor lives as long as its run and should need little memory. It follows
redirects only for downloads, which an object store may serve itself. It does not retry: every message is idempotent by
design (claim ids, offsets, digests), and the loops that send them decide when to try again, with `Backoff` for the
waiting time.

A 404 means that the run was deleted, and makes the agent delete its folder, only if the body is the API's own error.
Any other 404, such as a proxy's, counts as unreachable.
"""

from __future__ import annotations

import http.client
import json
import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

from pydantic import ValidationError

from trainwright.contracts.agent_protocol import (
    Batch,
    CheckpointCommit,
    Claim,
    ClaimRequest,
    CommitReply,
    EndReply,
    EndReport,
    ExportJob,
    ExportRequest,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    OffsetReply,
    Offsets,
    Renewal,
    RenewalReply,
    UploadLinks,
    UploadRequest,
)
from trainwright.contracts.base import Envelope

Reply = TypeVar("Reply", bound=Envelope)

TIMEOUT_SECONDS = 10.0
"""A call fails when the API is silent for this long."""
_TRANSFER_TIMEOUT_SECONDS = 60.0
_MAX_RESPONSE_BYTES = 64 * 2**20
_BLOCK_BYTES = 2**20
_REDIRECTS = (302, 303, 307, 308)
_NOT_ALLOWED = (401, 403)
AWAITING_NODES = "awaiting_nodes"
"""Code of a refusal: files of a checkpoint are missing, which other nodes may still send."""

_IN_TRANSIT = ("events_behind", AWAITING_NODES, "not_committed")
"""Codes of refusals that end when something that was already sent, or that another node sends, has been stored."""


class ApiError(Exception):
    """A call failed."""


class UnreachableError(ApiError):
    """No response, or one that is not the API's own: worth retrying."""


class RefusedError(ApiError):
    """The API refused the call. ``code`` identifies the reason."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code

    @property
    def is_temporary(self) -> bool:
        """Whether a retry may succeed: the token or link is not valid right now, or something is still in transit."""
        return self.status in _NOT_ALLOWED or self.code in _IN_TRANSIT


class MissingBytesError(RefusedError):
    """A file is shorter than announced."""


class LinkRefusedError(RefusedError):
    """A signed link is not valid, most often because it has expired."""


class RunDeletedError(RefusedError):
    """The run was deleted."""


class StaleFenceError(RefusedError):
    """The attempt is not the run's newest, or its placement is closed."""


class ClaimRefusedError(RefusedError):
    """The run cannot be claimed with this claim id, or no longer can."""


class WrongOffsetError(RefusedError):
    """The API has stored ``offset`` bytes of the file."""

    def __init__(self, status: int, code: str, detail: str, offset: int) -> None:
        super().__init__(status, code, detail)
        self.offset = offset


def is_permanent(error: RefusedError) -> bool:
    """Whether this one message is refused permanently, and not the entire attempt, or only for now."""
    return not (error.is_temporary or isinstance(error, RunDeletedError | StaleFenceError))


class Backoff:
    """Waiting times with jitter that double from ``first_seconds`` up to ``limit_seconds``, until `reset`."""

    def __init__(self, first_seconds: float, limit_seconds: float) -> None:
        self._first = first_seconds
        self._limit = limit_seconds
        self._next = first_seconds

    def reset(self) -> None:
        self._next = self._first

    def next_seconds(self) -> float:
        seconds = self._next * random.uniform(0.5, 1.0)
        self._next = min(2 * self._next, self._limit)
        return seconds


class Client:
    """The calls of one node. Thread-safe: every call opens its own connection."""

    def __init__(self, api_url: str, token: str | None = None) -> None:
        self.api_url = api_url
        self._base = api_url.rstrip("/")
        self._token = token

    def join(self, join: Join) -> JoinReply:
        return self._post("/join", join, JoinReply, 30.0)

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        return self._post("/heartbeat", heartbeat, HeartbeatReply)

    def claim(self, run_id: str, claim_id: str) -> Claim:
        return self._post(_run(run_id, "claim"), ClaimRequest(claim_id=claim_id), Claim)

    def renew(self, run_id: str, renewal: Renewal, timeout_seconds: float) -> RenewalReply:
        return self._post(_run(run_id, "renew"), renewal, RenewalReply, timeout_seconds)

    def send_batch(self, run_id: str, batch: Batch) -> OffsetReply:
        return self._post(_run(run_id, "batches"), batch, OffsetReply)

    def send_log(
        self, run_id: str, file: str, attempt: int, fence: int, offset: int, content: bytes
    ) -> OffsetReply:
        query = urlencode({"attempt": attempt, "fence": fence, "offset": offset})
        path = f"{_run(run_id, 'logs')}/{quote(file)}?{query}"
        return self._call("POST", path, content, "application/octet-stream", OffsetReply, TIMEOUT_SECONDS)

    def request_uploads(self, run_id: str, request: UploadRequest) -> UploadLinks:
        return self._post(_run(run_id, "uploads"), request, UploadLinks, 30.0)

    def commit_checkpoint(self, run_id: str, commit: CheckpointCommit) -> CommitReply:
        return self._post(_run(run_id, "checkpoints"), commit, CommitReply, _TRANSFER_TIMEOUT_SECONDS)

    def report_end(self, run_id: str, report: EndReport) -> EndReply:
        return self._post(_run(run_id, "end"), report, EndReply)

    def export_job(self, run_id: str, request: ExportRequest) -> ExportJob:
        return self._post(_run(run_id, "export-job"), request, ExportJob)

    def offsets(self, run_id: str, attempt: int) -> Offsets:
        path = f"{_run(run_id, 'offsets')}?{urlencode({'attempt': attempt})}"
        return self._call("GET", path, None, None, Offsets, TIMEOUT_SECONDS)

    def put(self, url: str, descriptor: int, size_bytes: int) -> None:
        """Upload an open file, from its start, to a signed link. The node token is not sent."""
        body = _Reader(descriptor, size_bytes)
        headers = {"Content-Length": str(size_bytes), "Content-Type": "application/octet-stream"}
        connection, target = _connect(urljoin(f"{self._base}/", url), _TRANSFER_TIMEOUT_SECONDS)
        try:
            connection.request("PUT", target, body=body, headers=headers)
            response = connection.getresponse()
            _raise_for_status(response.status, response.read(_MAX_RESPONSE_BYTES))
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"PUT of a file: {error!r}") from error
        finally:
            connection.close()

    def get(self, url: str, write: Callable[[bytes], object], begin: int = 0) -> None:
        """Download a signed link block by block from byte ``begin`` on, or what it redirects to. The node token is not sent."""
        with ExitStack() as opened:
            try:
                address = urljoin(f"{self._base}/", url)
                response = _open(address, begin, opened)
                if response.status in _REDIRECTS:
                    response = _follow(address, begin, response, opened)
                if response.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                    raise MissingBytesError(response.status, "no_such_range", f"the file has no byte {begin}")
                if response.status in _NOT_ALLOWED:  # by the API, or in an object store's own format
                    raise LinkRefusedError(
                        response.status, "link_refused", "the link is not valid any longer"
                    )
                if response.status not in (200, 206):
                    _raise_for_status(response.status, response.read(_MAX_RESPONSE_BYTES))
            except (OSError, http.client.HTTPException) as error:
                raise UnreachableError(f"GET of a file: {error!r}") from error
            skip_bytes = begin if response.status == 200 else 0  # the server ignored Range
            while block := _read_block(response):
                write(block[skip_bytes:])
                skip_bytes = max(skip_bytes - len(block), 0)
            if response.length:  # the connection was closed
                raise UnreachableError(f"GET of a file broke off: {response.length} bytes are missing")

    def _post(
        self, path: str, body: Envelope, reply: type[Reply], timeout_seconds: float = TIMEOUT_SECONDS
    ) -> Reply:
        content = body.model_dump_json().encode()
        return self._call("POST", path, content, "application/json", reply, timeout_seconds)

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str | None,
        reply: type[Reply],
        timeout_seconds: float,
    ) -> Reply:
        headers = {"Accept": "application/json"}
        if content_type is not None:
            headers["Content-Type"] = content_type
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection, target = _connect(f"{self._base}/api/v1/agent{path}", timeout_seconds)
        try:
            connection.request(method, target, body=body, headers=headers)
            response = connection.getresponse()
            content = response.read(_MAX_RESPONSE_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        _raise_for_status(response.status, content)
        try:
            return reply.model_validate_json(content)
        except ValidationError as error:
            raise UnreachableError(
                f"{method} {path}: the response is not a valid {reply.__name__}: {error}"
            ) from error


class _Reader:
    """A file object over a descriptor that keeps the descriptor's position and stops at the announced size."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._descriptor = descriptor
        self._left = size_bytes
        self._offset = 0

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        content = os.pread(self._descriptor, min(wanted, _BLOCK_BYTES), self._offset)
        self._offset += len(content)
        self._left -= len(content)
        return content


def _run(run_id: str, action: str) -> str:
    return f"/runs/{quote(run_id, safe='')}/{action}"


def _connect(url: str, timeout_seconds: float) -> tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_seconds)
    return connection, f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"


def _open(address: str, begin: int, opened: ExitStack) -> http.client.HTTPResponse:
    """Start a download from byte ``begin`` on; ``opened`` closes its connection."""
    connection, target = _connect(address, _TRANSFER_TIMEOUT_SECONDS)
    opened.callback(connection.close)
    connection.request("GET", target, headers={"Range": f"bytes={begin}-"} if begin else {})
    return connection.getresponse()


def _follow(
    address: str, begin: int, response: http.client.HTTPResponse, opened: ExitStack
) -> http.client.HTTPResponse:
    location = response.getheader("Location", "")
    try:
        return _open(urljoin(address, location), begin, opened)
    except ValueError as error:
        raise UnreachableError(f"GET of a file: redirected to {location!r}: {error}") from error


def _read_block(response: http.client.HTTPResponse) -> bytes:
    try:
        # Unlike `read`, it returns what has arrived, which is then not lost if the connection breaks.
        return response.read1(_BLOCK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"GET of a file broke off: {error!r}") from error


def _raise_for_status(status: int, content: bytes) -> None:
    if 200 <= status < 300:
        return
    body = _error_body(content)
    code, detail = body.get("code"), str(body.get("detail") or body.get("title") or "")
    if status >= 500 or status in (408, 429) or not isinstance(code, str):
        raise UnreachableError(f"the API answered {status} {detail}".rstrip())
    offset = body.get("offset")
    if code == "wrong_offset" and isinstance(offset, int):
        raise WrongOffsetError(status, code, detail, offset)
    kinds: dict[str, type[RefusedError]] = {
        "stale_fence": StaleFenceError,
        "claim_refused": ClaimRefusedError,
    }
    kind = kinds.get(code, RunDeletedError if status == 404 else RefusedError)
    raise kind(status, code, detail)


def _error_body(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
