"""What a platform team loads into its monitoring. Files only, no code:

rules.yml             Prometheus: recording rules of the fleet's device-seconds, alerts
health.json           Grafana: does ingest take what jobs send (Prometheus)
fleet_savings.json    Grafana: device-hours saved (rates from rules.yml's series, frozen weeks from PostgreSQL)

The dashboards are in Grafana's classic JSON model; they ask which data sources to use. A test runs each query of each file.
"""
