"""doctor, of the site files and quirks of the machine and of the user: those that cannot be used."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from sifmod.actions.author.check_settings import check_settings
from sifmod.actions.doctor import Finding
from sifmod.config.settings import settings_directories
from sifmod.errors import ConfigError


def diagnose_settings(environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """A finding for each file that `sifmod check` would refuse, with its problems; one that all is well else."""
    checked = dict(_checked(environ))
    hint = "`install`, `show` and `check` of an easyconfig stop at it: mend it, or move it away"
    found = tuple(Finding("settings", "missing", text, hint) for text in checked.values() if text)
    return found or (Finding("settings", "ok", f"{len(checked)} site files and quirks beside the shipped ones"),)


def _checked(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Every file and its problems."""
    for directory in settings_directories(environ):
        for kind in ("site", "quirk"):
            for path in sorted((directory / f"{kind}s").glob("*.yaml")):
                try:
                    check_settings(path, kind, environ)
                except ConfigError as error:
                    yield path, "; ".join(map(str, error.problems))
                else:
                    yield path, ""
