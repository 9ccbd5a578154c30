"""site: which site this machine is, what is true of it, and a first file for one that is new."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sifmod.actions.author.draft_site import draft_site, survey
from sifmod.actions.author.new_file import check_target, write_text
from sifmod.config.detect import detected_site, site_directories
from sifmod.config.lint import bind_items, ends
from sifmod.config.load_site import LoadedSite, load_site
from sifmod.config.option import refuse_unknown
from sifmod.config.origin import Origin
from sifmod.config.prefix import settings_directories
from sifmod.config.site import SiteFile
from sifmod.config.yaml.check import check_layer
from sifmod.config.yaml.node import Mark, tree
from sifmod.errors import OptionError, Problem


@dataclass(frozen=True)
class Detected:
    """The site that this machine's paths tell, whatever the settings name."""

    name: str
    how: str  # `recognised by …`
    left_out: tuple[Problem, ...]  # of site files that cannot be read


def detect(environ: Mapping[str, str]) -> Detected:
    """Look which known site's paths exist; runs no program.

    Site files that cannot be read are left out. Raises OptionError for an unknown SIFMOD_* variable.
    """
    refuse_unknown(environ)
    machine, user = settings_directories(environ)
    base = detected_site(site_directories(user, machine), environ)
    return Detected(base.node.entries["name"].text, base.how, base.left_out)


def origins(loaded: LoadedSite) -> tuple[Origin, ...]:
    """Every key with its origin, and the bind paths that patterns and links have become here."""
    written = Counter(ends(item) for _, item in bind_items(loaded.tree))
    made: list[str] = []
    for bind in loaded.site.binds:
        if written[bind.source, bind.target]:
            written[bind.source, bind.target] -= 1
        else:
            made.append(bind.source if bind.source == bind.target else f"{bind.source}:{bind.target}")
    return (*loaded.origins, *(Origin("binds, as they are here", text, "a pattern or a link") for text in made))


def write_site(name: str, target: Path | None, environ: Mapping[str, str]) -> tuple[str, Path]:
    """Write a first file for the site `name`; gives its text and its path, by default where `--site NAME` finds it.

    Raises OptionError where that exists.
    """
    text = site_text(name, environ)
    path = settings_directories(environ)[1] / "sites" / f"{name}.yaml" if target is None else target
    if target is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    check_target(path)
    write_text(text, path)
    return text, path


def shadowed_by(path: Path, environ: Mapping[str, str]) -> Path | None:
    """The site file that the one at `path` stands in front of, as the name of both is looked up; None: none."""
    machine, user = settings_directories(environ)
    directories = site_directories(user, machine)
    if path.parent not in directories:
        return None
    behind = (directory / path.name for directory in directories[directories.index(path.parent) + 1 :])
    return next((other for other in behind if other.exists()), None)


def site_text(name: str, environ: Mapping[str, str]) -> str:
    """The text of a first file for the site `name`."""
    if problems := check_layer(SiteFile, tree({"name": name}, Mark("the name", 0, 0))):
        raise OptionError(problems[0].message)
    here = {origin.key: origin for origin in load_site({"site": "generic", "accelerator": "auto"}, environ).origins}
    found = here["accelerator"]
    return draft_site(name, (found.value, found.origin), survey())
