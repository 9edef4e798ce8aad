"""The fleet's server. aiohttp, prometheus-client.

serving        the server: queue, writers, limits, answers
authentication who the sender is: static tokens, or TokenReviews
api_server     the API server's client for TokenReviews and SubjectAccessReviews
receiving      stores a batch
shares         each namespace's share of the queue and of the writers
connections    limits on sockets
report_pages   a week's report over HTTP, for those who may read it
metrics        the server's Prometheus metrics
openapi        the description of the server's interface
tls            certificates that are renewed while the server runs
"""
