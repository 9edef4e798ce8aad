"""The ingest server's interface in OpenAPI 3.1, for people, proxies and generators of clients."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from ..pod import wire

_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_RETRY_AFTER = {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer", "minimum": 1}}}


def _refusal(what: str, retry: bool = False) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    return {"description": what, "content": content, **({"headers": _RETRY_AFTER} if retry else {})}


def _page(summary: str, answers: dict[str, str]) -> dict[str, Any]:
    responses = {code: {"description": what, "content": _TEXT} for code, what in answers.items()}
    return {"get": {"summary": summary, "security": [], "responses": responses}}


def description() -> dict[str, Any]:
    """The document served at /openapi.json."""
    receipt = {
        "type": "object",
        "required": ["outcome", "rows", "damaged_records", "damaged", "dropped_blocks", "reason"],
        "properties": {
            "outcome": {"type": "string", "enum": [outcome.value for outcome in wire.Outcome]},
            "rows": {"type": "integer", "description": "rows of the segment that are in the database now"},
            "damaged_records": {"type": "integer"},
            "damaged": {
                "type": "array",
                "items": {"type": "string"},
                "description": "why the first of them were not used",
            },
            "dropped_blocks": {"type": "integer", "description": "blocks dated too far from today"},
            "reason": {"type": "string"},
        },
    }
    post = {
        "summary": "Takes segments of one spool",
        "description": (
            "Answered once all that is new in them is committed. Rows have keys that the sender made: posting a batch again, or "
            "out of order, changes nothing. After any other answer nothing of the batch counts as taken; post it again later."
        ),
        "requestBody": {
            "required": True,
            "description": (
                f"{wire.MAGIC!r}, then each segment as its length (32 bits, little-endian) and its bytes; Content-Encoding: gzip "
                f"is understood. At most {wire.MAX_BODY_BYTES} bytes, before and after decompression, in at most {wire.MAX_SEGMENTS} "
                f"segments of at most {wire.MAX_SEGMENT_BYTES} bytes each."
            ),
            "content": {wire.CONTENT_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        },
        "responses": {
            "200": {
                "description": "what became of each segment, in order",
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "required": ["segments"],
                            "properties": {"segments": {"type": "array", "items": receipt}},
                        }
                    }
                },
            },
            "400": _refusal("no batch, or one of a version that this server does not read"),
            "401": _refusal("no token, or one that is not valid here"),
            "403": _refusal("rows of another namespace, pod or run than the token's; nothing of the batch was written"),
            "408": _refusal("the body did not arrive"),
            "413": _refusal("the body is too large"),
            "415": _refusal("the body is compressed by something else than gzip"),
            "429": _refusal("too much is being written already, by all or by this namespace", retry=True),
            "503": _refusal(
                "the database or the API server does not answer, or the server is shutting down", retry=True
            ),
        },
    }
    week = {
        "name": "week",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]{4}-W[0-9]{2}$"},
    }
    formats = {"name": "format", "in": "query", "schema": {"enum": ["html", "json", "csv", "table"], "default": "html"}}
    revision = {
        "name": "revision",
        "in": "query",
        "description": "the week as this revision has it; left out: as the database has it now",
        "schema": {"type": "integer", "minimum": 1},
    }
    answers = {
        "200": "the report",
        "400": "no week, no format, or no number of a revision",
        "401": "no token",
        "403": "its owner may not get savingsreports.stitchfleet.io of that name",
        "404": "the week has no such revision",
        "429": "too many reports are being made",
        "503": "the API server or the database does not answer",
    }
    report = {
        "summary": "The weekly report, for people; only with --kubernetes, which identifies them",
        "description": "The token is one of the cluster, for the API server's own audience.",
        "parameters": [week, formats, revision],
        "responses": {code: {"description": what, "content": _TEXT} for code, what in answers.items()},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stitchfleet ingest",
            "version": metadata.version("stitchfleet"),
            "description": "Takes what training processes measured, for the fleet's database.",
        },
        "security": [{"token": []}],
        "paths": {
            wire.PATH: {"post": post},
            "/healthz": _page("Whether the process lives", {"200": "it does"}),
            "/readyz": _page("Whether it can take batches", {"200": "it can", "503": "why it cannot"}),
            "/metrics": _page("Prometheus' metrics", {"200": "the text format"}),
            "/reports/{week}": {"get": report},
            "/openapi.json": {
                "get": {
                    "summary": "This document",
                    "security": [],
                    "responses": {"200": {"description": "OpenAPI", "content": {"application/json": {}}}},
                }
            },
        },
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "a projected Kubernetes service-account token for the server's audience, or a static one",
                }
            },
            "schemas": {
                "Refusal": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {"error": {"type": "string", "description": "one line"}},
                }
            },
        },
    }
