"""Keeps the certificates in one Secret, and the authority's certificate in the webhook's configuration, for the API server.

Every webhook pod does this, without a leader: the Secret's resource version lets one of them win, and the others read what it wrote.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from .certificates import AUTHORITY, DEFAULT_LIFETIMES, Lifetimes, Server, renewed
from .client import REQUEST_SECONDS, status_of

TRIES = 5


class CertificateStore:
    """Keeps the certificates of `servers` in a Secret, and the authority in a MutatingWebhookConfiguration; both are given by
    name. Its calls block: not for the event loop's thread."""

    def __init__(
        self,
        api: Any,
        namespace: str,
        secret: str,
        configuration: str,
        servers: Sequence[Server],
        lifetimes: Lifetimes = DEFAULT_LIFETIMES,
    ) -> None:
        self._core: Any = client.CoreV1Api(api)
        self._admission: Any = client.AdmissionregistrationV1Api(api)
        self._namespace, self._secret, self._configuration = namespace, secret, configuration
        self._servers, self._lifetimes = tuple(servers), lifetimes

    def ensure(self, now: datetime.datetime | None = None) -> dict[str, bytes]:
        """Renews the certificates that are due, publishes the authority, and returns the data of the Secret (key -> PEM). now: a
        time with a time zone; None: the current time. Raises ApiException, with status 409 if others changed the Secret TRIES
        times in a row."""
        moment = now or datetime.datetime.now(datetime.timezone.utc)
        for _ in range(TRIES):
            configuration = self._read_configuration()
            held, version, owners = self._read()
            wanted = renewed(held, self._servers, moment, self._lifetimes)
            is_ours = configuration.metadata.uid in owners
            if (wanted == held and is_ours) or self._write(wanted, version, configuration):
                self._publish(wanted[AUTHORITY], configuration)
                return wanted
        raise ApiException(status=409, reason=f"the Secret {self._secret} was changed by others {TRIES} times in a row")

    def _read(self) -> tuple[dict[str, bytes], str | None, list[str]]:
        """(data of the Secret, its version, the uids of its owners); the version is None if there is no Secret."""
        try:
            found = self._core.read_namespaced_secret(self._secret, self._namespace, _request_timeout=REQUEST_SECONDS)
        except ApiException as error:
            if status_of(error) == 404:
                return {}, None, []
            raise
        data = {name: base64.b64decode(text) for name, text in (found.data or {}).items()}
        owners = [str(owner.uid) for owner in found.metadata.owner_references or ()]
        return data, found.metadata.resource_version, owners

    def _read_configuration(self) -> Any:
        return self._admission.read_mutating_webhook_configuration(
            self._configuration, _request_timeout=REQUEST_SECONDS
        )

    def _write(self, wanted: dict[str, bytes], version: str | None, configuration: Any) -> bool:
        """Writes the Secret; False if somebody else was first. The Secret is owned by the configuration, so that an uninstall
        deletes it."""
        owner = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "name": self._configuration,
            "uid": configuration.metadata.uid,
        }
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._secret, "namespace": self._namespace, "ownerReferences": [owner]},
            "type": "Opaque",
            "data": {name: base64.b64encode(pem).decode() for name, pem in wanted.items()},
        }
        try:
            if version is None:
                self._core.create_namespaced_secret(self._namespace, body, _request_timeout=REQUEST_SECONDS)
            else:
                body["metadata"]["resourceVersion"] = version
                self._core.replace_namespaced_secret(
                    self._secret, self._namespace, body, _request_timeout=REQUEST_SECONDS
                )
        except ApiException as error:
            if status_of(error) == 409:
                return False
            raise
        return True

    def _publish(self, authority: bytes, found: Any) -> None:
        """Writes caBundle into every webhook of the configuration that has another one."""
        name = self._configuration
        bundle = base64.b64encode(authority).decode()
        changes: list[dict[str, Any]] = [
            {"op": "test", "path": f"/webhooks/{number}/name", "value": webhook.name}
            for number, webhook in enumerate(found.webhooks or ())
            if webhook.client_config.ca_bundle != bundle
        ]
        changes += [
            {"op": "add", "path": change["path"].replace("/name", "/clientConfig/caBundle"), "value": bundle}
            for change in changes
        ]
        if changes:
            self._admission.patch_mutating_webhook_configuration(name, changes, _request_timeout=REQUEST_SECONDS)
