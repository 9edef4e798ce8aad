"""What a platform team loads into its monitoring. Files only, no code:

rules.yml             Prometheus: recording rules of the fleet's device-seconds, alerts
health.json           Grafana: does ingest take what jobs send (Prometheus)
fleet_savings.json    Grafana: device-hours saved (rates from rules.yml's series, frozen weeks from PostgreSQL)

The dashboards are in Grafana's classic JSON model; they ask which data sources to use. Grafana's user of the database needs

    GRANT SELECT ON jobs, iterations, weekly_savings, weekly_job_savings TO grafana

and nothing else. A test runs each query of each file.
"""
