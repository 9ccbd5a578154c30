"""YAML files to frozen values: easyconfigs, sites, settings."""
