"""`sifmod`, `python -m sifmod`: answers `--version` before anything else is imported."""

import sys


def main() -> int:
    """Run the command line and return the exit code."""
    if sys.argv[1:] == ["--version"]:
        from sifmod import __version__

        sys.stdout.write(f"sifmod {__version__}\n")
        return 0
    from sifmod.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
