"""`sifmod` and `python -m sifmod`; a lone `--version` is answered before anything else is imported."""

import sys


def main() -> int:
    """Run the command line and return the exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from sifmod import __version__

        try:
            sys.stdout.write(f"sifmod {__version__}\n")
            sys.stdout.flush()
            return 0
        except (OSError, AttributeError):  # standard output is full or closed: `run` reports it
            pass
    from sifmod.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
