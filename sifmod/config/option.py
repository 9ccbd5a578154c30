"""Every option of the command line and every SIFMOD_ variable: one table, which all other code reads.

It imports neither click nor pydantic, because TAB and `sifmod list` read it too.
"""

import os
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from sifmod.config.redact import without_query
from sifmod.errors import OptionError
from sifmod.secret import secret_parts

# `file` gives a Path; `place`, `places` (with `:` between) and what may be a path (`site`, `reference`) stay texts
Word = (
    Literal["flag", "text", "text or nothing", "number", "whole", "amount", "day", "walltime", "name", "file"]
    | Literal["place", "places", "site", "reference"]
)
_URL = r"(?i)(^|:)([a-z][a-z0-9+.-]*:/|https?:)/"
Title = Literal["What", "Where", "How", "Slurm", "Output", ""]


class Option(NamedTuple):
    """An option, or under the title "" a key of the site that only its variable and settings files set."""

    title: Title  # under which the help has it
    typed: str  # as the help writes it: -o --output FILE
    type: Word | range | tuple[str, ...]  # a word, a range of whole numbers, or words to choose from
    help: str = ""  # without it the help leaves the option out
    called: str = ""  # the name of its field, if it differs from the typed name
    of: str = ""  # the command that this row is for; "" for all commands without a row of their own
    many: bool = False  # it may be repeated
    key: bool = False  # it is a key of the site too, and the variable SIFMOD_<NAME>
    decides: bool = False  # about a module's files: receipts keep it
    brief: bool = False  # only `install` and `config show` explain it
    submits: bool = False  # for the command that submits a job, not for the elements of the job
    unset: str = ""  # what applies if nothing sets it, as `config show` says it

    @property
    def spellings(self) -> list[str]:
        """The option's spellings, the full one last."""
        return [word for word in self.typed.split() if word.startswith("-")]

    @property
    def metavar(self) -> str | None:
        """The placeholder for the option's value; None for a flag."""
        return " ".join(word for word in self.typed.split() if not word.startswith("-")) or None

    @property
    def name(self) -> str:
        """The name of the option's field, and of the site's key."""
        return self.called or self.spellings[-1].removeprefix("--").replace("-", "_")

    def in_full(self, text: str) -> str:
        """A value with its relative paths made absolute. Raises OptionError for a URL instead of a directory."""
        if self.type in ("place", "places") and (re.search(_URL, text) or secret_parts((text,))):
            raise OptionError(f"{(self.spellings or [self.called])[-1]} takes directories of this machine, not a URL")
        match self.type:
            case "place":
                parts = [text]
            case "places":
                parts = text.split(":")
            case "site" if "/" in text or text.endswith(".yaml"):
                parts = [text]
            case "reference" if Path(text).exists():
                parts = [text]
            case _:
                return text
        return ":".join(absolute(part) for part in parts if part)


def absolute(text: str) -> str:
    """A path from the command line: a shell replaces no `~` in `--prefix=~/x`. A link stays a link."""
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111


ONE_OR_MORE = range(1, sys.maxsize)

what, where, how = partial(Option, "What"), partial(Option, "Where"), partial(Option, "How")
slurm, output, only_key = partial(Option, "Slurm"), partial(Option, "Output"), partial(Option, "", "", key=True)
submits = partial(Option, "Slurm", submits=True)
of_site = partial(Option, "Where", key=True, decides=True, brief=True)

# in the order of the help under each title, and of the receipt
TABLE = (
    what(
        "--variant NAME|all",
        "text",
        "The variant (default: the one for this accelerator; all: every one for this architecture); may be repeated.",
        "variants",
        many=True,
    ),
    what(
        "--variant NAME|all",
        "text",
        "This variant (default: all); may be repeated.",
        "variants",
        "check",
        many=True,
    ),
    what("--variant NAME", "text", "The variant of the easyconfig.", of="show", decides=True),
    what("--source REFERENCE", "reference", "Fetch the image from this source, not the easyconfig's.", decides=True),
    how("--link", ("copy", "hardlink", "reference"), "How to use a local SIF.", key=True, decides=True),
    what("--module-only", "flag", "Render the modulefile and scripts again, and keep the installed image."),
    what("--installed", "flag", "With --module-only: render all installed modules again, as without FILE."),
    what("-S --search", "flag", "Only search for the names, as `sifmod search` does."),
    what("-M --missing-modules", "flag", "Only show which of the modules are not installed."),
    what("--sanity-check-only", "flag", "Only check installed modules again: their commands, paths and checks."),
    what("--fetch", "flag", "Only fetch the images into the store; install nothing."),
    what("--locked", "flag", "Install exactly what the lock records, or fail."),
    what("--locked", "flag", "Show what `apply --locked` would do.", of="stack plan"),
    what("--bundle FILE.tar|DIR", "file", "Install this bundle instead of a stack file, without a network.", "bundled"),
    what("--only MODULE", "text", "Only this module; may be repeated.", many=True, submits=True),
    what("--sha256 DIGEST", "text", "The SIF must have this SHA-256."),
    what("--add-to-index", "flag", "Add the image to the tag's index, beside images for other architectures."),
    what("--to", ("sif", "sqsh", "oci-archive", "docker-archive", "sandbox"), "The form to write."),
    what("--to NUMBER", "whole", "This generation instead of the previous one.", of="rollback"),
    what("--from BASE", "text", "Let the easyconfig build on this image, or on that of another easyconfig.", "base"),
    what("--pip PACKAGE", "text", "With --from: a package to add, in pip's syntax.", many=True),
    what("--name NAME", "text", "The module's name (default: guessed)."),
    what("--version VERSION", "text", "The module's version (default: guessed)."),
    what("--origins", "flag", "For an easyconfig: show the origin of each value."),
    what("--arch", ("amd64", "arm64"), "Architecture of the image (default: the site's)."),
    what("--name-from", ("path", "whatis"), "Source of a Lua modulefile's name (default: path)."),
    what("-r --requirement FILE", "text", "Add the packages of a requirements.txt.", "files", many=True),
    what("-e --editable DIRECTORY", "text", "Add a local project in editable mode.", many=True),
    what("--onto OTHER", "text", "Build MODULE's layer for the module OTHER, or again for MODULE after a new image."),
    what("-U --upgrade", "flag", "Upgrade all packages of the layer."),
    what("--all", "flag", "Remove the whole layer.", "everything"),
    what("--all", "flag", "Upgrade all installed modules.", "everything", "upgrade"),
    what("--all", "flag", "Also list the modules that easyconfigs can install here.", "everything", "stack catalogue"),
    what("--stale", "flag", "Remove MODULE's layer only for images that are no longer installed."),
    what("--layer LAYER", "text", "A layer other than `default`."),
    what("--lab", "flag", "Start JupyterLab in the module's container, and print how to connect."),
    what("--remove", "flag", "Remove the kernel."),
    what("--without LIST", "file", "Leave out the images in this list: `ls PREFIX/images/sha256` of the target."),
    what("--title TEXT", "text", "The title (default: Modules of SITE)."),
    what("--style", ("srun", "torchrun", "lightning", "nccl-tests"), "How to start processes (default: srun)."),
    what("--nodes", range(1, 100_001), "Nodes (default: 2, or 1 without distributed Python).", of="jobscript"),
    what("--nodes N", ONE_OR_MORE, "Test on N nodes of the allocation, by srun."),
    what("--time TIME", "walltime", "Time limit, as for sbatch (default: 00:30:00)."),
    what("--network", "flag", "Report the network that NCCL or RCCL uses; on a site with a fabric, TCP is a failure."),
    what("--minimum GB/S", "amount", "Fail if the bus bandwidth is lower, or was not measured."),
    what("--signature", "flag", "Only verify the images' signatures, with the site's public keys."),
    what("--keys FILE", "text", "With --signature: further OpenPGP public keys.", many=True),
    what("--modes", "flag", "Only check group and modes, against the site's `sharing`."),
    what("--repair-modes", "flag", "Correct group and modes of sifmod's files in the prefix."),
    what(
        "--purge",
        "flag",
        "Also remove the files at once, unless a job may use them; then there is no rollback and no hold.",
    ),
    what("--none", "flag", "Remove the default of this name."),
    what("--successor MODULE", "text", "The module to use instead, which must be installed."),
    what("--since DATE", "day", "The first day of the notice or the retirement (default: as before, or today)."),
    what("--until DATE", "day", "The last day on which the module loads; then it is retired."),
    what("--message TEXT", "text", "The reason, or the module to use instead."),
    what("--undo", "flag", "Undo an earlier run of this command."),
    what("--days DAYS", "amount", "Keep files that were in use within this number of days (default: 14)."),
    what("--now", "flag", "Same as --days 0."),
    what("--rollbacks", "flag", "Also remove the generations that `rollback` would restore."),
    what("--marks", "flag", "Also remove images that only users' modules in other trees use."),
    what("--output [COMMAND]", "text or nothing", "Schema of COMMAND's --json output, or of all commands'.", "verb"),
    what("--stack", "flag", "The schema of a stack file."),
    what("--hooks", "flag", "The schema of a hook's standard input."),
    where(
        "--from PREFIX",
        "file",
        "Also use the images of this tree, by their digests; may be repeated.",
        "stores",
        many=True,
    ),
    where("-o --output FILE", "text", "The output file (- for standard output); an existing file is not replaced."),
    where("-o --output FILE", "file", "Write the SIF to this file instead.", of="fetch"),
    where("-o --output PATH", "file", "The file, or for sandbox the directory, to write.", of="export"),
    where("-o --output DIRECTORY", "text", "Directory of the easyconfigs (default: the current one).", of="import"),
    where("-o --output LOCK", "file", "The lock to write (default: beside FILE).", of="stack lock"),
    where("-o --output LOCK", "file", "Write one lock for all easyconfigs to this file.", of="lock"),
    where("-o --output FILE.tar|DIR", "file", "The bundle to write.", of="stack bundle"),
    where(
        "-o --output DIR",
        "file",
        "The directory for index.html, catalogue.json, feed.xml and pages/.",
        of="stack catalogue",
    ),
    where("--find-links PLACE", "text", "Also search this directory or page for wheels.", many=True),
    where("--module-tree DIRECTORY", "text", "The `module use` directory, if files lie deeper than NAME/VERSION.lua."),
    where(
        "--dir DIRECTORY",
        "text",
        "Directory of layers, such as a project's (then set SIFMOD_LAYERS); --prefix only chooses MODULE's tree, "
        "unless you own it.",
        "directory",
    ),
    where("--site NAME", "site", "The site: a name (lumi-g, …) or a file.", key=True, decides=True),
    where("--prefix DIR", "place", "The tree that holds modules, images and software (SIFMOD_PREFIX).", key=True),
    of_site("--robot-paths DIRS", "places", "Directories to search for easyconfigs (`:` between)."),
    of_site("--image-dirs DIRS", "places", "Directories to search for images given by name."),
    of_site("--accelerator", ("auto", "rocm", "cuda", "none"), "The site's accelerator."),
    of_site("--runtime NAME|PATH", "text", "The container runtime: apptainer, singularity, or a path."),
    how("--syntax", ("lua", "tcl", "both"), "The modulefile to write (default: both)."),
    of_site("--module-syntax", ("auto", "lua", "tcl", "both"), "The syntax of modulefiles."),
    how("-r --robot", "flag", "Accepted for compatibility with EasyBuild; it has no effect."),
    how("--rebuild", "flag", "Install and check again, even if nothing has changed."),
    how("--rebuild", "flag", "Show what `apply --rebuild` would do.", of="stack plan"),
    how("-f --force", "flag", "Replace an existing file; a directory is never replaced."),
    how("-f --force", "flag", "Like --rebuild, and fetch the image again.", of="install"),
    how("-f --force", "flag", "Fetch again what exists already, and replace the FILE of -o.", of="fetch"),
    how("-f --force", "flag", "Overwrite a tag that names another image.", of="push"),
    how(
        "-j --jobs N",
        range(1, 65),
        "Number of modules to install at once (default: the site's `processors`, else all processors, up to 8).",
    ),
    how(
        *(
            "-j --jobs N",
            range(1, 65),
            "Number of easyconfigs to read at once (default: the site's `processors`, else all processors, up to 8).",
        ),
        of="stack plan",
    ),
    how("--offline", "flag", "Use only files on this machine, no network."),
    how(
        "--skip-sanity-check", "flag", "Do not run the sanity check: commands, paths, and the easyconfig's own checks."
    ),
    how("--skip-sanity-check", "flag", "Accepted as by `apply`; the plan is the same.", of="stack plan"),
    how("--fail-fast", "flag", "Stop after the first failure."),
    how("--fail-on-held", "flag", "Exit with 1 if a module is skipped because it is held after a rollback."),
    how("--local-settings", "flag", "With --bundle: use the settings of this machine, not those of the bundle."),
    how("-y --yes", "flag", "Do not ask before writing a large image to the home directory."),
    how(
        "-y --yes",
        "flag",
        "Do not ask before writing a large image to the home directory, or before rendering all modules again.",
        of="install",
    ),
    how("-y --yes", "flag", "Remove what is listed as `remove`.", of="gc"),
    how("--compression KIND", "text", "Compression of a converted image: auto, zstd:N, gzip:N, lz4.", key=True),
    how(
        *("--processors N", "number", "Threads for converting an image (default: all, at most 8)."),
        key=True,
        unset="all available, at most 8",
    ),
    how(
        "--keep-blobs",
        "flag",
        "Keep the downloaded layers until the same image is fetched without this option, or `gc` removes them (after "
        "14 days).",
    ),
    how("-c --constraint FILE", "text", "Use only versions that this file allows.", "constraints", many=True),
    how("--pre", "flag", "Also use pre-releases."),
    how("--unpacked", "flag", "Store the layer as a directory that you can edit, instead of one file."),
    how("--no-index", "flag", "Use no index, only the places of --find-links."),
    how("-i --index-url URL", "text", "Use this index instead of uv's own."),
    how("--extra-index-url URL", "text", "Use this index first.", many=True),
    how("--no-build-isolation", "flag", "Compile with the packages of the image and the layer (for flash-attn)."),
    how("--no-import", "flag", "Do not test importing the added packages."),
    how("--forget", "flag", "Write no lock; the tree no longer keeps the images of FILE's lock."),
    how("--no-wheels", "flag", "Do not include sifmod itself."),
    how("--bcast", "flag", "Copy image and layer to each node first, for many nodes."),
    how("--timeout SECONDS", ONE_OR_MORE, "Time limit for each command (default: 600)."),
    how("--ignore-jobs", "flag", "Do not ask Slurm whether jobs use the files."),
    how(
        "--release",
        "flag",
        "Switch nothing; end the hold, so that the held content can be installed again.",
    ),
    submits("--job", "flag", "Submit to Slurm: an array of jobs, each of which installs some of the modules."),
    submits("--job", "flag", "Submit a job of N nodes, and wait for the result.", of="test"),
    submits("--wait", "flag", "With --job: wait for the jobs; the exit code is as without --job."),
    slurm(
        "--account NAME",
        "name",
        "The Slurm account (default: the site's, else the placeholder PROJECT).",
        of="jobscript",
    ),
    submits("-A --account ACCOUNT", "text", "With --job: as for sbatch (default: SBATCH_ACCOUNT, or the site's)."),
    slurm(
        "--partition NAME",
        "name",
        "The partition (default: the site's, else the placeholder PARTITION).",
        of="jobscript",
    ),
    submits(
        "-p --partition PARTITION",
        "text",
        "With --job: as for sbatch (default: SBATCH_PARTITION, or the site's).",
    ),
    submits("--job-cores N", ONE_OR_MORE, "Cores per element (default: SBATCH_CPUS_PER_TASK, or 8)."),
    submits("--job-max-walltime HOURS", range(1, 8761), "Time limit per element (default: SBATCH_TIMELIMIT, or 4)."),
    submits("--job-max-jobs N", ONE_OR_MORE, "Maximal number of array elements (default: 100)."),
    submits("--job-output-dir DIR", "text", "Directory for logs of failed elements (default: the current one)."),
    submits("--job-partition PARTITION", "text", "As for sbatch (default: SBATCH_PARTITION, or the site's)."),
    submits("--job-account ACCOUNT", "text", "As for sbatch (default: SBATCH_ACCOUNT, or the site's)."),
    submits("--job-test", "flag", "Test the modules that this run submits with `sifmod test`, in further jobs."),
    submits("--job-test-partition PARTITION", "text", "Partition of the tests, if different."),
    output(
        "-D --dry-run-short",
        "flag",
        "Show a line for each module: [ ] new, [x] installed, [R] reinstalled, [F] fetched again, [H] held.",
    ),
    output(
        "-D --dry-run-short",
        "flag",
        "Show a line for each module: [ ] new, [x] installed, [R] reinstalled, [F] fetched again, [H] held; "
        "without FILE, what would change in all modules.",
        of="install",
    ),
    output("--dry-run", "flag", "Show what would be done, with every path."),
    output("-x --extended-dry-run", "flag", "Show every file that would be written, with its content."),
    output("--format", ("json", "xml"), "The CycloneDX format (default: json).", "form"),
    output("--junit FILE", "text", "Write a JUnit XML report to this file.", submits=True),
    output("-q --quiet", "flag", "Print results and errors, but no other messages.", submits=True),
    output("--json", "flag", "Print data for programs.", "as_json", submits=True),
    only_key("number", called="lock_lease"),
    only_key("text", called="umask", unset="yours"),
    only_key("text", called="group", unset="yours"),
    only_key("places", called="trees"),
    only_key("places", called="stores"),
    only_key("text", called="arch"),
    only_key("number", called="connections"),
    only_key("number", called="memory", unset="a quarter of the memory of the machine or control group"),
)

KEYS = {option.name: option for option in TABLE if option.key}
"""The keys of a site that a variable sets, and for some an option; lists are separated by `:`."""
VARIABLES = (
    # what `stack apply` sets, where settings are, and what a module reads when it is loaded, started or asked for pip
    *("SIFMOD_BUNDLE", "SIFMOD_CONFIG_DIR", "SIFMOD_LAYER", "SIFMOD_LAYERS", "SIFMOD_STALE_LAYER"),
    *("SIFMOD_PIP", "SIFMOD_CONTAINER", "SIFMOD_ANY_CONTAINER"),
    *(f"SIFMOD_{key.upper()}" for key in KEYS),
)
_DECIDING = {option.name: option for option in TABLE if option.decides}
_OPTIONS = {(option.of, option.name): option for option in TABLE if option.typed}


def option_of(command: str, name: str) -> Option:
    """The option `name` of a command (`install`, `stack lock`). Raises KeyError for an unknown name."""
    return _OPTIONS.get((command, name)) or _OPTIONS["", name]


def in_full(settings: Mapping[str, str]) -> dict[str, str]:
    """The keys of the site that were given as options, with absolute paths. Raises OptionError for a URL as a path."""
    return {key: KEYS[key].in_full(text) for key, text in settings.items()}


def deciding(given: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """The given options that decide about a module's files, in full but for queries of URLs: a receipt keeps them."""
    known = ((option, text) for name, option in _DECIDING.items() if (text := given.get(name)) is not None)
    return tuple((option.spellings[-1], without_query(option.in_full(text))) for option, text in known)
