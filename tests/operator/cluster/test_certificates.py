"""The small authority: what is renewed when, and that whoever trusts what is published can connect at every moment."""

from __future__ import annotations

import base64
import collections
import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from kubernetes.client.exceptions import ApiException

from stitchfleet.operator.cluster.authority import TRIES, CertificateStore
from stitchfleet.operator.cluster.certificates import AUTHORITY, Lifetimes, Server, expiry, renewed

START = datetime.datetime(2026, 11, 24, tzinfo=datetime.timezone.utc)
SERVERS = [Server("webhook", ("webhook.ns.svc", "webhook")), Server("ingest", ("ingest.ns.svc",))]
DAY = datetime.timedelta(days=1)


def is_trusted(held: dict[str, bytes], published: bytes, name: str, now: datetime.datetime) -> bool:
    """Whether a client that trusts the authorities in `published` takes the server's certificate."""
    mine = x509.load_pem_x509_certificate(held[f"{name}.crt"])
    if not mine.not_valid_before_utc <= now < mine.not_valid_after_utc:
        return False
    for authority in x509.load_pem_x509_certificates(published):
        try:
            mine.verify_directly_issued_by(authority)
        except Exception:
            continue
        return authority.not_valid_before_utc <= now < authority.not_valid_after_utc
    return False


def test_from_nothing_all_is_made_and_then_nothing_is_due() -> None:
    held = renewed({}, SERVERS, START)
    assert {AUTHORITY, "webhook.crt", "webhook.key", "ingest.crt", "ingest.key"} <= set(held)
    assert renewed(held, SERVERS, START + DAY) == held
    names = x509.load_pem_x509_certificate(held["webhook.crt"]).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert set(names.value.get_values_for_type(x509.DNSName)) == {"webhook.ns.svc", "webhook"}


def test_a_serving_certificate_is_renewed_in_its_last_third_under_the_same_authority() -> None:
    held = renewed({}, SERVERS, START)
    assert renewed(held, SERVERS, START + 59 * DAY) == held
    later = renewed(held, SERVERS, START + 61 * DAY)
    assert later[AUTHORITY] == held[AUTHORITY]
    assert expiry(later["webhook.crt"]) > expiry(held["webhook.crt"])


def test_through_years_every_client_can_connect_that_learned_of_the_authorities_a_while_ago() -> None:
    """Looked at every day for five years with authorities of two: who trusts what was published two days ago is always served."""
    lifetimes = Lifetimes(authority=730 * DAY, serving=90 * DAY, publish=3 * DAY)
    held = renewed({}, SERVERS, START, lifetimes)
    published, signers = collections.deque([held[AUTHORITY]] * 2, maxlen=2), set()
    for day in range(1, 5 * 365):
        now = START + day * DAY
        held = renewed(held, SERVERS, now, lifetimes)
        for server in SERVERS:
            assert is_trusted(held, published[0], server.name, now), day
            assert is_trusted(held, held[AUTHORITY], server.name, now), day
        published.append(held[AUTHORITY])
        signers.add(held["signer.key"])
    assert len(signers) >= 3


@pytest.mark.parametrize("broken", [AUTHORITY, "signer.key", "webhook.crt", "webhook.key"])
def test_what_cannot_be_read_is_made_anew(broken: str) -> None:
    held = renewed({}, SERVERS, START)
    mended = renewed(held | {broken: b"rubbish"}, SERVERS, START)
    assert is_trusted(mended, mended[AUTHORITY], "webhook", START)
    assert renewed(mended, SERVERS, START) == mended


def test_a_server_of_another_name_gets_a_certificate_of_its_own() -> None:
    held = renewed({}, SERVERS, START)
    moved = renewed(held, [Server("webhook", ("other.ns.svc",)), SERVERS[1]], START)
    assert moved["webhook.crt"] != held["webhook.crt"]
    assert moved["ingest.crt"] == held["ingest.crt"]


# ---- the Secret that all webhook pods share ---------------------------------------------------------------------------------


class SharedSecret:
    """The part of the API that a store uses. Another pod writes the Secret before each of the first `rivals` writes is taken, as the
    API server lets only one of two win."""

    def __init__(self, rivals: int) -> None:
        self.rivals, self.version, self.data = rivals, 1, dict[str, str]()
        self.published: list[str] = []

    def read_namespaced_secret(self, *_names: str, **_options: Any) -> Any:
        metadata = SimpleNamespace(resource_version=str(self.version), owner_references=[SimpleNamespace(uid="uid")])
        return SimpleNamespace(data=dict(self.data), metadata=metadata)

    def replace_namespaced_secret(self, _name: str, _space: str, body: Any, **_options: Any) -> None:
        if self.rivals:
            self.rivals, self.version = self.rivals - 1, self.version + 1
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiException(status=409)
        self.version, self.data = self.version + 1, body["data"]

    def read_mutating_webhook_configuration(self, *_names: str, **_options: Any) -> Any:
        webhook = SimpleNamespace(name="pods", client_config=SimpleNamespace(ca_bundle=None))
        return SimpleNamespace(metadata=SimpleNamespace(uid="uid"), webhooks=[webhook])

    def patch_mutating_webhook_configuration(self, _name: str, changes: Any, **_options: Any) -> None:
        self.published += [change["value"] for change in changes if change["op"] == "add"]


def store_over(api: SharedSecret) -> CertificateStore:
    store = CertificateStore(None, "ns", "certificates", "stitchfleet", SERVERS)
    store._core = store._admission = api
    return store


def test_a_pod_that_was_second_reads_again_and_publishes_what_the_secret_holds() -> None:
    api = SharedSecret(rivals=2)
    kept = store_over(api).ensure(START)
    assert {name: base64.b64decode(text) for name, text in api.data.items()} == kept
    assert api.published == [base64.b64encode(kept[AUTHORITY]).decode()]


def test_a_secret_that_others_change_all_the_time_is_an_error() -> None:
    api = SharedSecret(rivals=TRIES)
    with pytest.raises(ApiException) as raised:
        store_over(api).ensure(START)
    assert raised.value.status == 409
    assert api.published == []
