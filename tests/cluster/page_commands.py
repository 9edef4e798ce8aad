"""What test_docs.py runs of the commands that the pages show (tests/pages.py), and what each has to print."""

from __future__ import annotations

ON_A_CLUSTER = {
    "kubectl get nodes": "Ready",
    "kubectl -n stitchfleet get pods": "stitchfleet-controller-",
    "kubectl -n stitchfleet logs deploy/stitchfleet-webhook": "webhook",
    "kubectl -n stitchfleet logs deploy/stitchfleet-ingest": "stitchfleet ingest",
    "kubectl -n stitchfleet logs deploy/stitchfleet-controller": "stitchfleet controller: looks after",
    "kubectl -n stitchfleet get pods -l stitchfleet.io/serves=ingest": "stitchfleet-ingest-",
    "kubectl -n stitchfleet get pods -l app.kubernetes.io/component=webhook": "stitchfleet-webhook-",
    "kubectl -n stitchfleet get pods -l app.kubernetes.io/component=controller": "stitchfleet-controller-",
    "kubectl -n stitchfleet describe pod": "stitchfleet-ingest-",
    "kubectl -n stitchfleet rollout restart deploy/stitchfleet-ingest deploy/stitchfleet-controller": "restarted",
    "kubectl auth can-i create tokenreviews.authentication.k8s.io --as=system:serviceaccount:stitchfleet:stitchfleet-ingest": "yes",
    "kubectl -n stitchfleet get configmap stitchfleet-pauses -o yaml": "kind: ConfigMap",
    "kubectl -n stitchfleet get secret stitchfleet-certificates -o jsonpath='{.data.webhook\\.crt}' | base64 -d"
    " | openssl x509 -noout -dates": "notAfter=",
    "kubectl explain stitchpolicy.spec": "sampleStride",
    "helm test stitchfleet -n stitchfleet": "Phase:          Succeeded",
    "kubectl get savingsreports": "SUMMARY",
    "kubectl get savingsreport 2026-w48 -o yaml": "conditions:",
}
"""With the release of PostgreSQL, which has a deployment for each part."""

INSTALLING = {
    ".venv/bin/python -m scripts.images.build payload operator --push REGISTRY": "/stitchfleet/operator:",
    "helm install stitchfleet helm/stitchfleet --namespace stitchfleet --create-namespace --set clusterName=paris"
    " --set imageRegistry=REGISTRY --wait": "STATUS: deployed",
    "helm test stitchfleet --namespace stitchfleet": "Phase:          Succeeded",
    "kubectl get pod train -o jsonpath='{.metadata.annotations}'": '"stitchfleet.io/injected":"main"',
    "kubectl logs train | grep stitchfleet": "stitched from step",
    "kubectl apply --server-side -f helm/stitchfleet/crds": "stitchpolicies.stitchfleet.io serverside-applied",
    "helm upgrade stitchfleet helm/stitchfleet --namespace stitchfleet --reset-then-reuse-values": "REVISION: 2",
    "helm rollback stitchfleet REVISION --namespace stitchfleet --wait": "Rollback was a success",
    "helm uninstall stitchfleet --namespace stitchfleet --wait": "uninstalled",
    "kubectl delete crd savingsreports.stitchfleet.io stitchpolicies.stitchfleet.io": "deleted",
}
"""A release that is installed, used and removed by the pages' words alone, in this order."""

A_LAPTOP = ("scripts/cluster up", "scripts/cluster down")
