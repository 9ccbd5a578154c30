"""Every option of the command line and every SIFMOD_ variable: one table, which all that know an option read.

It imports neither click nor pydantic, for TAB and `sifmod list` read it too.
"""

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

# `file` gives a Path; `place`, `places` (with `:` between) and what may be a path (`site`, `reference`) stay texts
Word = (
    Literal["flag", "text", "text or nothing", "number", "whole", "amount", "day", "walltime", "name", "file"]
    | Literal["place", "places", "site", "reference"]
)
Title = Literal["What", "Where", "How", "Slurm", "Output", ""]


class Option(NamedTuple):
    """An option, or under the title "" a key of the site that only its variable and settings files give."""

    title: Title  # under which the help has it
    typed: str  # as the help writes it: -o --output FILE
    type: Word | range | tuple[str, ...]  # of whole numbers; words to choose from
    help: str = ""  # without it the help leaves the option out
    called: str = ""  # what the field is called that holds it, where that is not as it is typed
    of: str = ""  # the command for which this row is; "" for all that have none of their own
    many: bool = False  # it may be repeated
    key: bool = False  # it is a key of the site too, and the variable SIFMOD_<NAME>
    decides: bool = False  # about a module's files: receipts keep it
    brief: bool = False  # only `install` and `config show` explain it
    submits: bool = False  # it is for the command that submits a job, and not for the elements of the job
    unset: str = ""  # what is in force, in the words of `config show`, where nothing gives it

    @property
    def spellings(self) -> list[str]:
        """How it is typed, the full one last."""
        return [word for word in self.typed.split() if word.startswith("-")]

    @property
    def metavar(self) -> str | None:
        """What stands for its value."""
        return " ".join(word for word in self.typed.split() if not word.startswith("-")) or None

    @property
    def name(self) -> str:
        """That of the field that holds it, and of the key."""
        return self.called or self.spellings[-1].removeprefix("--").replace("-", "_")

    def in_full(self, text: str) -> str:
        """A value with its relative paths made absolute."""
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
        return ":".join(os.path.abspath(part) for part in parts if part)  # noqa: PTH100 (a link stays a link)


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
        "Which one (default: for this accelerator; all: of this architecture); may be repeated.",
        "variants",
        many=True,
    ),
    what("--variant NAME|all", "text", "Only this (default: all); may be repeated.", "variants", "check", many=True),
    what("--variant NAME", "text", "Of an easyconfig: which variant.", of="show", decides=True),
    what("--source REFERENCE", "reference", "Take the image from here instead.", decides=True),
    how("--link", ("copy", "hardlink", "reference"), "How a local SIF is taken in.", key=True, decides=True),
    what("--module-only", "flag", "Render modulefile and scripts again, keep the installed image."),
    what("--installed", "flag", "With --module-only: all that is installed. No FILE means the same."),
    what("-S --search", "flag", "Only search for the names, as `sifmod search` does."),
    what("-M --missing-modules", "flag", "Only show which of them are not installed."),
    what("--sanity-check-only", "flag", "Only check installed modules again: their commands, paths and checks."),
    what("--fetch", "flag", "Only fetch the images into the store; install nothing."),
    what("--locked", "flag", "Exactly what the lock says, or nothing."),
    what(
        "--bundle FILE.tar|DIR", "file", "Without FILE: exactly what this bundle holds, without a network.", "bundled"
    ),
    what("--only MODULE", "text", "This module and no other; may be repeated.", many=True, submits=True),
    what("--sha256 DIGEST", "text", "The SIF must have this SHA-256."),
    what("--add-to-index", "flag", "Put the image beside those for other architectures under this tag."),
    what("--to", ("sif", "sqsh", "oci-archive", "docker-archive", "sandbox"), "What to write."),
    what("--to NUMBER", "whole", "This generation rather than the previous one.", of="rollback"),
    what("--from BASE", "text", "Build an image upon this one, or upon an easyconfig's.", "base"),
    what("--pip PACKAGE", "text", "With --from: a package to add, as pip spells it.", many=True),
    what("--name NAME", "text", "The module's name (default: guessed)."),
    what("--version VERSION", "text", "Its version (default: guessed)."),
    what("--origins", "flag", "Of an easyconfig: where each of its values came from."),
    what("--arch", ("amd64", "arm64"), "Architecture of the image (default: the site's)."),
    what("--name-from", ("path", "whatis"), "Name a Lua modulefile's module by its path (default) or its own words."),
    what("-r --requirement FILE", "text", "Add what a requirements.txt asks for.", "files", many=True),
    what("-e --editable DIRECTORY", "text", "Add a project of yours as it is being edited.", many=True),
    what("--onto MODULE", "text", "Make the layer of MODULE anew for this module or its new image."),
    what("-U --upgrade", "flag", "Take newer versions of all that the layer holds."),
    what("--all", "flag", "The whole layer.", "everything"),
    what("--all", "flag", "All installed modules.", "everything", "upgrade"),
    what("--all", "flag", "Also what can be installed from the easyconfig path.", "everything", "stack catalogue"),
    what("--stale", "flag", "The layers for images that are no longer installed."),
    what("--layer LAYER", "text", "Another one than `default`."),
    what("--lab", "flag", "Start JupyterLab in the module's container, and say how to reach it."),
    what("--remove", "flag", "Take the kernel away."),
    what("--without LIST", "file", "Leave out the images of this file's digests (`ls PREFIX/images/sha256` there)."),
    what("--title TEXT", "text", "What stands above it (default: Modules of SITE)."),
    what("--style", ("srun", "torchrun", "lightning", "nccl-tests"), "How processes are started (default: srun)."),
    what("--nodes", range(1, 100_001), "How many (default: 2, or 1 without distributed Python).", of="jobscript"),
    what("--nodes N", ONE_OR_MORE, "On N nodes of the allocation, by srun."),
    what("--time TIME", "walltime", "As sbatch takes it (00:30:00)."),
    what("--network", "flag", "Say which network NCCL or RCCL takes; TCP fails on a site with a fabric."),
    what("--minimum GB/S", "amount", "Fail with less bandwidth of the bus, or where none was measured."),
    what("--signature", "flag", "Instead: who signed the images, checked with the site's public keys."),
    what("--keys FILE", "text", "With --signature: further OpenPGP public keys.", many=True),
    what("--modes", "flag", "Instead: whether group and modes are as the site's `sharing` says."),
    what("--repair-modes", "flag", "Make them so, of what sifmod has made in the prefix."),
    what("--purge", "flag", "Free the space at once; there is no rollback then."),
    what("--none", "flag", "No module of this name is the default any more."),
    what("--successor MODULE", "text", "The module to use instead, which is installed."),
    what("--since DATE", "day", "From this day on (default: today)."),
    what("--until DATE", "day", "The last day on which it loads; then it is retired."),
    what("--message TEXT", "text", "What to use instead, or why."),
    what("--undo", "flag", "Take back what was decided."),
    what("--days DAYS", "amount", "Keep what was in use within so many days (default: 14)."),
    what("--now", "flag", "The same as --days 0."),
    what("--rollbacks", "flag", "Remove what `rollback` would go back to, too."),
    what("--marks", "flag", "Remove images to which only users' modules in other trees refer, too."),
    what("--output [VERB]", "text or nothing", "Of what VERB (list, …), or each, prints with --json.", "verb"),
    what("--stack", "flag", "That of a stack's file."),
    what("--hooks", "flag", "That of what a hook has on its standard input."),
    where("--from PREFIX", "file", "With --locked: images of this tree too; may be repeated.", "stores", many=True),
    where("-o --output FILE", "text", "Write it here (- for standard output); a file that exists is left as it is."),
    where("-o --output FILE", "file", "Write the SIF here instead.", of="fetch"),
    where("-o --output PATH", "file", "Write it here.", of="export"),
    where("-o --output DIRECTORY", "text", "Write the easyconfigs here (default: the current directory).", of="import"),
    where("-o --output LOCK", "file", "Write it here, not beside FILE.", of="stack lock"),
    where("-o --output LOCK", "file", "One lock of them all.", of="lock"),
    where("-o --output FILE.tar|DIR", "file", "Where it goes.", of="stack bundle"),
    where("-o --output DIR", "text", "Where index.html, catalogue.json and pages/ go.", of="stack catalogue"),
    where("--find-links PLACE", "text", "Look for wheels in this directory or page too.", many=True),
    where("--module-tree DIRECTORY", "text", "What users give to `module use`, for paths with more than NAME/VERSION."),
    where("--dir DIRECTORY", "text", "Keep it here: of a project, named by SIFMOD_LAYERS.", "directory"),
    where("--site NAME", "site", "Facts of a site: a shipped one (lumi-g, …) or a file.", key=True, decides=True),
    where("--prefix DIR", "place", "The tree that holds modules, images and software (SIFMOD_PREFIX).", key=True),
    of_site("--robot-paths DIRS", "places", "Where easyconfigs are looked for (`:` between)."),
    of_site("--image-dirs DIRS", "places", "Where images given by name are looked for."),
    of_site("--accelerator", ("auto", "rocm", "cuda", "none"), "GPUs of the site."),
    of_site("--runtime NAME|PATH", "text", "apptainer, singularity, or the path of one."),
    how("--syntax", ("lua", "tcl", "both"), "Which modulefile (default: both)."),
    of_site("--module-syntax", ("auto", "lua", "tcl", "both"), "Modulefiles."),
    how("-r --robot", "flag", "Accepted for EasyBuild's sake; it changes nothing."),
    how("--rebuild", "flag", "Install again, and check again, even where nothing has changed."),
    how("-f --force", "flag", "Replace a file that is there; a directory is never replaced."),
    how("-f --force", "flag", "As --rebuild, and fetch the image again.", of="install"),
    how("-f --force", "flag", "Fetch again what is there already, and replace FILE.", of="fetch"),
    how("-f --force", "flag", "Overwrite a tag that names another image.", of="push"),
    how("-j --jobs N", range(1, 65), "Modules at the same time (default: processors)."),
    how("--offline", "flag", "Use only what is on this machine."),
    how("--skip-sanity-check", "flag", "Do not look for commands in the image."),
    how("--fail-fast", "flag", "Of several: leave the others after a failure."),
    how("--fail-on-held", "flag", "End with 1 where a module is left out that is held after a rollback."),
    how("--local-settings", "flag", "With --bundle: by the settings here, not by those of the bundle."),
    how("-y --yes", "flag", "Do not ask before a large image goes to the home directory."),
    how("-y --yes", "flag", "Remove what is shown.", of="gc"),
    how("--compression KIND", "text", "Of a converted image: auto, zstd:N, gzip:N, lz4.", key=True),
    how(
        *("--processors N", "number", "Threads that convert an image (default: all, at most 8)."),
        key=True,
        unset="those this process may use, at most 8",
    ),
    how("--keep-blobs", "flag", "Keep the layers of a conversion, for 14 days or until a fetch without this option."),
    how("-c --constraint FILE", "text", "Take versions that it allows.", "constraints", many=True),
    how("--pre", "flag", "Take versions before a release, too."),
    how("--unpacked", "flag", "Keep a directory, which can be edited, and not one file."),
    how("--no-index", "flag", "Ask no index: only the places of --find-links."),
    how("-i --index-url URL", "text", "Ask this index in the place of uv's own."),
    how("--extra-index-url URL", "text", "Ask this index first.", many=True),
    how("--no-build-isolation", "flag", "Compile with what the image and the layer hold (flash-attn)."),
    how("--no-import", "flag", "Do not try whether what is added can be imported."),
    how("--then-decide", "flag"),  # of the elements of a job for a whole stack
    how("--forget", "flag", "Write none: the tree keeps no image for FILE's lock any more."),
    how("--no-wheels", "flag", "Leave out sifmod itself."),
    how("--bcast", "flag", "Copy image and layer to each node first: for many nodes."),
    how("--timeout SECONDS", ONE_OR_MORE, "For each command (600)."),
    how("--ignore-jobs", "flag", "Do not ask Slurm: no job uses what would go."),
    how("--release", "flag", "Switch nothing; let what was rolled back from be installed again."),
    submits("--job", "flag", "Submit it to Slurm: an array with an element for each image."),
    submits("--job", "flag", "Submit it as a job of N nodes, and wait for the answer.", of="test"),
    submits("--wait", "flag", "With --job: wait, and end as without it."),
    slurm("--account NAME", "name", "Without it PROJECT marks its place.", of="jobscript"),
    submits("-A --account ACCOUNT", "text", "With --job: as sbatch has it."),
    slurm("--partition NAME", "name", "Without it PARTITION marks its place.", of="jobscript"),
    submits("-p --partition PARTITION", "text", "With --job: as sbatch has it."),
    submits("--job-cores N", ONE_OR_MORE, "Of an element (8)."),
    submits("--job-max-walltime HOURS", range(1, 8761), "Of an element (4)."),
    submits("--job-max-jobs N", ONE_OR_MORE, "Elements of an array (100)."),
    submits("--job-output-dir DIR", "text", "Where an element that fails leaves its log (the current directory)."),
    submits("--job-partition PARTITION", "text", "As sbatch has it."),
    submits("--job-account ACCOUNT", "text", "As sbatch has it."),
    submits("--job-test", "flag", "Test what was installed, by `sifmod test` in further jobs."),
    submits("--job-test-partition PARTITION", "text", "Where they run, if not in the other one."),
    output("-D --dry-run-short", "flag", "Show what would be done, a line each: [ ] [x] [R] [F]."),
    output("--dry-run", "flag", "Show what would be done, with every path."),
    output("-x --extended-dry-run", "flag", "Show every file that would be written, with its text."),
    output("--format", ("json", "xml"), "Of CycloneDX (json).", "form"),
    output("--junit FILE", "text", "Write a report in JUnit's XML.", submits=True),
    output("-q --quiet", "flag", "Say nothing but errors.", submits=True),
    output("-q --quiet", "flag", "Say nothing but errors and the commands to type next.", of="install"),
    output("--json", "flag", "Print data for programs.", "as_json", submits=True),
    only_key("number", called="lock_lease"),
    only_key("text", called="umask", unset="yours"),
    only_key("text", called="group", unset="yours"),
    only_key("places", called="stores"),
    only_key("text", called="arch"),
    only_key("number", called="connections"),
    only_key("number", called="memory", unset="a quarter of the machine's or the control group's"),
)

KEYS = {option.name: option for option in TABLE if option.key}
"""The keys of a site that a variable gives, and some of them an option; lists are separated by `:`."""
VARIABLES = (
    # what `stack apply` sets, where settings are, and what a module reads when it is loaded, started or asked for pip
    *("SIFMOD_BUNDLE", "SIFMOD_CONFIG_DIR", "SIFMOD_LAYER", "SIFMOD_LAYERS", "SIFMOD_STALE_LAYER"),
    *("SIFMOD_PIP", "SIFMOD_CONTAINER", "SIFMOD_ANY_CONTAINER"),
    *(f"SIFMOD_{key.upper()}" for key in KEYS),
)
_OPTIONS = {(option.of, option.name): option for option in TABLE if option.typed}


def option_of(command: str, name: str) -> Option:
    """The option of a command (`install`, `stack lock`) that is called so. Raises KeyError for what is none."""
    return _OPTIONS.get((command, name)) or _OPTIONS["", name]


def in_full(settings: Mapping[str, str]) -> dict[str, str]:
    """Keys of the site that options give, with paths that mean the same in any directory."""
    return {key: KEYS[key].in_full(text) for key, text in settings.items()}


def deciding(given: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """What decides about a module's files of the options that are given, as typed in full: a receipt keeps it."""
    options = ((option, given.get(option.name)) for option in TABLE if option.decides)
    return tuple((option.spellings[-1], option.in_full(text)) for option, text in options if text is not None)
