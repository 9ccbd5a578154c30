"""`sifmod`, `python -m sifmod`: answers `--version` before anything else is imported."""

import sys


def main() -> int:
    """Run the command line and return the exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from sifmod import __version__

        try:
            sys.stdout.write(f"sifmod {__version__}\n")
            sys.stdout.flush()
            return 0
        except (OSError, AttributeError):  # full, or closed: run says so
            pass
    from sifmod.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
