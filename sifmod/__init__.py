"""sifmod turns one declarative YAML file into a loadable environment module backed by a container image."""

__version__ = "0.2.0"
