"""The OCI distribution client: mirrors, logins, time limits, certificates."""
