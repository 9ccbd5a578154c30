"""The command line: no other code prints or exits, except __main__.py for a lone `--version`."""
