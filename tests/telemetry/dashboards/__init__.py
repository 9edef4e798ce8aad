"""Prometheus rules and Grafana dashboards, read by Prometheus' own programs."""
