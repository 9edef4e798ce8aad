"""What a platform team loads into its monitoring. Files only, no code:

rules.yml             Prometheus: recording rules of the fleet's device-seconds, alerts
health.json           Grafana: whether ingest takes what jobs send (Prometheus)
fleet_savings.json    Grafana: device-hours saved (rates from rules.yml's series, frozen weeks from PostgreSQL)

The dashboards are in Grafana's classic JSON model, and let the user choose the data sources. Grafana's user of the database needs

    GRANT SELECT ON jobs, iterations, weekly_savings, weekly_job_savings TO grafana

and nothing else. A test runs each query of each file.
"""
