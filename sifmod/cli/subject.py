"""`sifmod sbom`, `diff`, `push` and `export`: inspect, compare and export modules and images."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sifmod.actions.start import resolve, site_in_force
from sifmod.cli.command import argument, command
from sifmod.cli.context import load_facts, reporter
from sifmod.cli.later import later
from sifmod.cli.output import counted, echo, print_json, quiet, say
from sifmod.cli.shared_options import SiteOptions, TreeOptions
from sifmod.errors import OptionError
from sifmod.system import one_line, size_text
from sifmod.tree.layout import Layout

with later():
    from sifmod.actions import diff, export, push, sbom
    from sifmod.actions import subject as subjects
    from sifmod.actions.author import new_file
    from sifmod.actions.layer import places
    from sifmod.cli import progress, show
    from sifmod.config import site as config_site
    from sifmod.tree import receipt


def subject(text: str, trees: "tuple[Layout, ...]") -> "subjects.Subject":
    """The module or image that `text` names; stored images are those of the first tree.

    Raises ModuleError or FetchError if there is none, ModuleError if several are possible.
    """
    layout = trees[0]
    if show.names_image(text) or subjects.is_digest(text):
        return subjects.of_image(layout, text)
    name, at, number = text.partition("@")
    if at and not number.isdecimal():
        name, number = text, ""
    live = places.known(trees)
    module = resolve(name, live if not number else {*live, *receipt.known_modules(layout)})
    return subjects.of_generation(live.get(module, layout), module, int(number) if number else None)


def _trees(site: "config_site.Site") -> "tuple[Layout, ...]":
    return places.layouts_of(site, os.environ)


class SbomOptions(TreeOptions):
    name: str = argument("MODULE|FILE|REFERENCE")
    form: "sbom.Format" = "json"
    output: str | None = None


@command("sbom", SbomOptions, lambda: sbom.Sbom)
def sbom_command(given: SbomOptions) -> None:
    """Print a software bill of materials (CycloneDX 1.6) of an image, read without starting it.

    MODULE@NUMBER is a generation of a module. FILE is a SIF; a stored image can also be named by its digest or original
    reference. Your layers over a module are included as separate components. A view lists the modules that it loads,
    each with its packages.
    """
    target = Path(given.output) if given.output and given.output != "-" else None
    if target:
        new_file.check_target(target)
    trees = _trees(load_facts(given.settings).site)
    meant = subject(given.name, trees)
    module = meant.installation.module if meant.installation else None
    layers = [*places.found_layers(trees, os.environ)] if module else []
    made = sbom.sbom(meant, layers, given.form, os.environ, places.known(trees))
    if target:
        new_file.write_text(made.text, target)
    for note in made.notes:
        say(f"note: {note}")
    if given.as_json:
        print_json(replace(made, path=target and target.absolute()))
    elif target:
        say(f"{target}: {counted(made.package_count, 'package')}, {counted(len(made.layers), 'layer')}")
    else:
        echo(made.text, nl=False)


_MOST = 20  # system packages to list; the rest is counted, and --json has all
_DIGEST = r"\b([0-9a-f]{12})[0-9a-f]{52}\b"


class DiffOptions(TreeOptions):
    before: str = argument("MODULE|FILE|REFERENCE")
    after: str | None = argument("[MODULE|FILE|REFERENCE]", default=None)


@command("diff", DiffOptions, lambda: diff.Difference)
def diff_command(given: DiffOptions) -> None:
    """Show the differences: packages, variables, bind paths, commands, and sources.

    Compares two modules, generations (MODULE@NUMBER), SIFs, or stored images by digest or reference; for a single
    module, its live and its previous generation. The exit code is 0 whether or not something changed.
    """
    trees, before, after = _trees(load_facts(given.settings).site), given.before, given.after
    new = subject(after or before, trees)
    if after is None and (new.installation is None or "@" in before):
        raise OptionError(
            f"{before} can only be compared with another module or image", "name two modules or images to compare"
        )
    if after is None and new.installation:
        old = subjects.before(Layout(new.installation.prefix), new.installation.module)
    else:
        old = subject(before, trees)
    found = diff.diff(old, new)
    if given.as_json:
        print_json(found)
        return
    for note in found.notes:
        say(f"note: {note}")
    echo(f"{found.old} → {found.new}")
    for line in _lines(found):
        echo(line)


def _lines(found: "diff.Difference") -> "Iterator[str]":
    """For each part its name, the number of changes, and the changes; a line if nothing differs."""
    parts: tuple[tuple[str, Sequence[diff.Change]], ...] = (
        ("made from", found.origin_changes),
        ("modules", found.loaded_modules),
        ("variables", found.variables),
        ("variables in the container", found.variables_inside),
        ("bind paths", found.binds),
        ("commands", found.commands),
    )
    rows = list(_package_lines(found.packages))
    for title, changes in parts:
        if changes:
            rows.append(f"{title}: {_counted([(one.old is None, one.new is None) for one in changes])}")
            rows += [f"  {one_line(_row(one.name, one.old, one.new))}" for one in changes]
    yield from rows or ["no differences in packages or settings"]


def _package_lines(packages: "Sequence[diff.PackageChange]") -> "Iterator[str]":
    for kind in dict.fromkeys(one.kind for one in packages):
        changes = [one for one in packages if one.kind == kind]
        hidden = kind in ("deb", "rpm") and len(changes) > _MOST
        counts = _counted([(not one.old_versions, not one.new_versions) for one in changes])
        yield f"{kind} packages: {counts}{'; --json lists them' if hidden else ''}"
        for one in () if hidden else changes:
            yield f"  {_row(one.name, ', '.join(one.old_versions) or None, ', '.join(one.new_versions) or None)}"


def _row(name: str, before: str | None, after: str | None) -> str:
    old, new = (re.sub(_DIGEST, r"\1…", text or "") for text in (before, after))
    if before is None or after is None:
        value = "" if (new or old) == name else f" {new or old}"
        return f"{'+' if before is None else '-'} {name}{value}"
    return f"~ {name} {old} → {new}"


def _counted(changes: "Sequence[tuple[bool, bool]]") -> str:
    """The counts as text: `3 added, 1 removed, 2 changed`."""
    added = sum(new for new, _ in changes)
    removed = sum(gone for _, gone in changes)
    numbers = ((added, "added"), (removed, "removed"), (len(changes) - added - removed, "changed"))
    return ", ".join(f"{number} {word}" for number, word in numbers if number)


class PushCommand(SiteOptions):
    name: str = argument("MODULE|FILE|DIGEST")
    target: str = argument("REFERENCE")
    force: bool = False
    add_to_index: bool = False
    quiet: bool = False


@command("push", PushCommand, lambda: push.Pushed)
def push_command(given: PushCommand) -> None:
    """Push an image to a registry, and print the reference with the digest that the tag then has.

    oras://REGISTRY/REPOSITORY:TAG gets the SIF itself with its signatures. docker://… gets an OCI image: the layers
    that the SIF was converted from; for an image built on a base, the base's layers and one more; if no registry is
    known to have these, one layer with all files. Blobs that the registry has are not sent. Logins are the same as for
    fetch. To read variables set by a definition file, the runtime starts the image twice, isolated.
    """
    site = site_in_force(given.settings).site
    speak = quiet if given.quiet else say
    options = push.PushOptions(force=given.force, add_to_index=given.add_to_index)
    image = subject(given.name, _trees(site)).path
    with progress.progress(speak is say) as update:
        pushed = push.push(image, given.target, site, options, reporter(speak, update))
    for note in pushed.notes:
        speak(f"note: {note}")
    if given.as_json:
        print_json(pushed)
        return
    speak(
        "the registry already had it"
        if pushed.there and not pushed.sent
        else f"sent {size_text(pushed.sent)} of {size_text(pushed.size)}; as a"
        f" source of an easyconfig:  sources: ['{pushed.reference}']"
    )
    echo(pushed.reference)


_USED = {
    "sif": "apptainer exec {} COMMAND",
    "sqsh": "srun --container-image={} COMMAND",
    "oci-archive": "podman load -i {}",
    "docker-archive": "docker load -i {}",
    "sandbox": "apptainer exec {} COMMAND",
}


class ExportOptions(SiteOptions):
    name: str = argument("MODULE|FILE|DIGEST")
    to: "export.Form"
    output: Path | None = None
    force: bool = False
    quiet: bool = False


@command("export", ExportOptions, lambda: export.Exported)
def export_command(given: ExportOptions) -> None:
    """Write an image as a file or a directory for other tools, and print its path.

    sif is a copy; sqsh is for enroot and pyxis; oci-archive and docker-archive are for podman, docker and skopeo;
    sandbox is a directory with the files, for apptainer or for inspection. Without -o it is written to the current
    directory, named after the module or image. To read variables set by a definition file, the runtime starts the image
    twice, isolated.
    """
    to = given.to
    if given.output == Path("-"):
        raise OptionError("-o -: an image cannot be written to standard output", "name a file: -o FILE")
    site = site_in_force(given.settings).site
    speak = quiet if given.quiet else say
    meant = subject(given.name, _trees(site))
    module = meant.installation.module if meant.installation else None
    called = str(module).replace("/", "-") if module else meant.path.stem[: 12 if meant.sha256 else None]
    target = (given.output or Path(f"{called}{export.ENDINGS[to]}")).absolute()
    with progress.progress(speak is say) as update:
        made = export.export(meant.path, to, target, site, reporter(speak, update), force=given.force)
    for note in made.notes:
        speak(f"note: {note}")
    if given.as_json:
        print_json(made)
        return
    size = f", {size_text(made.size)}" if made.size is not None else ""
    speak(f"written: {to} of {meant.name}{size}; use it with {_USED[to].format(shlex.quote(str(target)))}")
    echo(target)
