"""Admission reviews over HTTP. Handling a request involves no call of the API and no disk.

If anything fails here, the pod is admitted unchanged, and the failure is counted: the webhook may cost a job its speed-up, never its
start.
"""

from __future__ import annotations

import base64
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from aiohttp import web

from ..policy.mpijob import mutate_mpijob
from ..policy.mutate import is_injected, mutate
from ..policy.names import INJECTED, NOT_INJECTED
from ..policy.patch import patch
from ..policy.policy import Admission, Policy
from ..policy.trainjob import mutate_jobset, mutate_trainjob
from .metrics import Metrics

PATH = "/mutate"
MAX_BODY_BYTES = 8 << 20
"""An object has at most 1.5 MiB in etcd; a review holds the object and more."""
MOST_REVIEW_BYTES = 1_450_000
"""A pod in a longer review is left unchanged: our additions could make it too large for etcd, which accepts 1.5 MiB."""
MAX_WARNING = 250
"""Characters; the API server cuts longer warnings."""
_OF_JOBS = {"mpijobs": mutate_mpijob, "trainjobs": mutate_trainjob, "jobsets": mutate_jobset}
"""By resource: objects that make pods, and that must pass their label to their pods."""


class Webhook:
    """The handlers. policy_of: returns the policy of a namespace; it runs on the event loop's thread and must not block."""

    def __init__(self, policy_of: Callable[[str], Policy], metrics: Metrics | None = None) -> None:
        self.policy_of = policy_of
        self.metrics = metrics or Metrics()
        self.not_ready = ""
        """Why requests must not be sent to this server yet; "" if they may."""

    def application(self) -> web.Application:
        """The aiohttp application with all routes."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post(PATH, self.admit)
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.prometheus)
        return app

    async def admit(self, request: web.Request) -> web.Response:
        """Handles a POST of an AdmissionReview: answers 200 with a review that admits the object, with a patch if it is changed.
        Any other body is answered with 400: it has no uid to answer with, and the API server ignores the answer."""
        started = time.perf_counter()
        try:
            body = await request.read()
            review = json.loads(body)
            uid = review["request"]["uid"]
        except (ValueError, KeyError, TypeError, RecursionError):
            self.metrics.admissions.labels("error").inc()
            return web.Response(status=400, text="no AdmissionReview\n")
        response: dict[str, Any] = {"uid": uid, "allowed": True}
        try:
            if len(body) > MOST_REVIEW_BYTES:
                response["warnings"] = [
                    "stitchfleet: not injected: the object is so large that nothing can be added to it"
                ]
                outcome = "left_alone"
            else:
                outcome = self._answer(review["request"], response)
        except Exception:
            response = {"uid": uid, "allowed": True}
            outcome = "error"
            print(
                f"stitchfleet webhook: a pod is admitted unchanged: {traceback.format_exc()}",
                file=sys.stderr,
                flush=True,
            )
        self.metrics.admissions.labels(outcome).inc()
        self.metrics.seconds.observe(time.perf_counter() - started)
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    def _answer(self, asked: dict[str, Any], response: dict[str, Any]) -> str:
        """Fills in the response; returns the outcome, one of metrics.OUTCOMES."""
        given, namespace = asked["object"], str(asked.get("namespace") or "")
        user = str((asked.get("userInfo") or {}).get("username") or "")
        admission = Admission(namespace, user, str(asked["uid"]))
        of_job = _OF_JOBS.get((asked.get("resource") or {}).get("resource", ""))
        if of_job is None and is_injected(given):
            return "unchanged"
        changed = (of_job or mutate)(given, self.policy_of(namespace), admission)
        operations = patch(given, changed)
        annotations = changed["metadata"].get("annotations") or {}
        if operations:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(operations).encode()).decode()
        if NOT_INJECTED in annotations:
            response["warnings"] = [f"stitchfleet: not injected: {annotations[NOT_INJECTED]}"[:MAX_WARNING]]
        if of_job is not None:
            return "left_alone" if NOT_INJECTED in annotations else "carried"
        return "injected" if INJECTED in annotations else "left_alone"

    async def healthz(self, _request: web.Request) -> web.Response:
        """Answers 200: the event loop runs."""
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        """Answers 200 as soon as the server has a certificate that the API server trusts, else 503 with the reason."""
        return web.Response(text=f"{self.not_ready or 'ok'}\n", status=503 if self.not_ready else 200)

    async def prometheus(self, _request: web.Request) -> web.Response:
        """Answers 200 with the metrics in Prometheus' text format."""
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self.metrics.exposition(), headers=headers)
