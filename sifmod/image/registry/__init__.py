"""The OCI distribution client: places, logins, deadlines, certificates."""
