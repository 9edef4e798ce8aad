"""The fleet's server. aiohttp, prometheus-client.

serving        the server: queue, writers, limits, what it answers
authentication who sends: static tokens, or TokenReviews
api_server     the API server's client for these and for SubjectAccessReviews
receiving      what becomes of a batch
shares         each namespace's share of the queue and the writers
connections    limits on sockets
report_pages   a week's report for those who may read it
metrics        what Prometheus sees
openapi        how the server is spoken to
tls            certificates that are renewed while it runs
"""
