"""Suggestions for an unknown command: the equivalent of another tool, else a similar name.

A suggestion runs nothing: a user who types `rm` out of habit should first read what ours removes.
"""

from collections.abc import Iterable

_UNINSTALL = "`sifmod uninstall MODULE` removes a module; `sifmod layer remove MODULE PACKAGE` takes out a package"
_LIST = "`sifmod list` lists what is installed, `sifmod search WORDS` what can be installed"
_SHOW = "`sifmod show MODULE` shows a module; `sifmod search NAME` lists what can be installed"
_RUN = "load the module and type the command: `module load MODULE`; its wrappers start the container"
_SHELL = "`module load MODULE`, then `start-shell` opens a shell in its container"
_BUILD = "`sifmod install FILE` builds an image from `image.build`; `sifmod new --from IMAGE` writes such an easyconfig"
_FETCH = "`sifmod fetch REFERENCE` fetches an image; `sifmod install NAME` installs a module"
_UPDATE = "`sifmod outdated` shows what is newer, `sifmod upgrade MODULE` installs it"
_UNDO = "`sifmod rollback MODULE` switches back to the previous generation"
_GC = "`sifmod gc` shows what can be freed, `sifmod gc --yes` frees it"
_NEW = "`sifmod new IMAGE` writes an easyconfig for an image, `sifmod install` installs it"
_CHECK = "`sifmod check FILE` validates an easyconfig, `sifmod verify` what is installed, `sifmod test MODULE` runs it"
_SITE = "`sifmod site new NAME` writes a site file, `sifmod config show` shows every setting"
_PUBLISH = "`sifmod stack apply FILE` publishes modules, `sifmod push MODULE REFERENCE` an image"
_VIEW = "a view is an easyconfig that loads other modules: the key `modules`; `sifmod install` installs it"
_LOCK = "`sifmod lock FILE` records what is installed; `sifmod stack lock FILE` does so for a stack"
_LOAD = "`module load MODULE` loads a module; `sifmod init bash` prints the line that makes yours visible"
_JOB = "`sifmod jobscript MODULE` prints a job script; `sifmod stack apply --job` installs by Slurm jobs"
_FROM = "`sifmod layer list MODULE` lists packages that were added, `sifmod sbom MODULE` all that the image has"

# of apt, dnf, pip, conda, docker, podman, apptainer, eb, shpc, spack, brew and git
OTHER_TOOLS = {
    **dict.fromkeys(("rm", "delete", "del", "erase", "purge", "rmi", "rmm", "autoremove"), _UNINSTALL),
    **dict.fromkeys(("ls", "ps", "images", "avail", "available", "modules"), _LIST),
    **dict.fromkeys(("info", "view-image", "inspect", "get", "describe", "cat", "namespace", "docgen"), _SHOW),
    **dict.fromkeys(("run", "exec", "start", "instance"), _RUN),
    **dict.fromkeys(("shell", "enter", "attach", "ssh"), _SHELL),
    **dict.fromkeys(("build", "make", "compile", "commit"), _BUILD),
    **dict.fromkeys(("pull", "download", "clone", "mirror", "buildcache"), _FETCH),
    **dict.fromkeys(("update", "refresh", "dist-upgrade", "full-upgrade"), _UPDATE),
    **dict.fromkeys(("undo", "revert", "restore", "reset", "downgrade"), _UNDO),
    **dict.fromkeys(("clean", "prune", "cleanup", "cache", "df", "du", "autoclean"), _GC),
    **dict.fromkeys(("create", "add-image", "recipe"), _NEW),
    **dict.fromkeys(("validate", "lint", "doctor-check", "audit"), _CHECK),
    **dict.fromkeys(("setup", "configure", "bootstrap", "repo"), _SITE),
    **dict.fromkeys(("publish", "deploy", "upload", "release", "apply", "plan"), _PUBLISH),
    **dict.fromkeys(("view", "env", "environment", "activate"), _VIEW),
    **dict.fromkeys(("freeze", "concretize"), _LOCK),
    **dict.fromkeys(("load", "unload", "use", "module", "spider"), _LOAD),
    **dict.fromkeys(("submit", "job", "batch", "sbatch", "srun"), _JOB),
    **dict.fromkeys(("packages", "pip", "conda", "uv"), _FROM),
    **dict.fromkeys(("reinstall", "rebuild"), "`sifmod install --rebuild FILE|NAME` installs a module again"),
    **dict.fromkeys(("history", "blame"), "`sifmod log` shows every change, `sifmod diff MODULE` what is different"),
    **dict.fromkeys(("tag", "save"), "`sifmod push` and `sifmod export` write an image for others"),
    **dict.fromkeys(("find", "query", "where", "locate", "list-easyconfigs"), "`sifmod search WORDS` finds modules"),
    **dict.fromkeys(("lifecycle", "life"), "`sifmod default`, `hide`, `deprecate` and `retire` set how modules load"),
    **dict.fromkeys(("man", "docs", "usage", "tutorial"), "`sifmod help` lists the commands and topics"),
    **dict.fromkeys(("login", "logout"), "sifmod reads the logins of docker, podman and apptainer: log in with these"),
    **dict.fromkeys(("catalogue", "catalog", "pages"), "`sifmod stack catalogue` writes pages about the modules here"),
    "bundle": "`sifmod stack bundle FILE` packs modules for machines without a network",
    "sign": "`apptainer sign FILE` signs a SIF; `sifmod verify --signature` checks who signed",
    "kernel": "`sifmod jupyter MODULE` makes a module a Jupyter kernel",
    "notebook": "`sifmod jupyter MODULE --lab` starts JupyterLab",
    "version": "`sifmod --version`",
    "arch": "`sifmod config show` shows the architecture of images for this machine: `arch`",
    "status": "`sifmod doctor` looks at the machine, `sifmod list` at the modules",
}
_OF_GROUPS = {
    "layer": {
        **dict.fromkeys(("rm", "uninstall", "delete"), "remove"),
        **dict.fromkeys(("ls", "show"), "list"),
        **dict.fromkeys(("install", "create"), "add"),
        **dict.fromkeys(("upgrade", "update"), "add"),
    },
    "stack": {"install": "apply", "diff": "plan", "export": "bundle", "new": "init", "upgrade": "outdated"},
    "site": {"list": "show", "create": "new", "init": "new"},
    "config": dict.fromkeys(("list", "get", "view"), "show"),
}
# options of EasyBuild's `eb`, which has no commands
OTHER_OPTIONS = {
    **dict.fromkeys(("-S", "--search", "--search-short"), "`sifmod search WORDS` searches the easyconfigs"),
    **dict.fromkeys(("-a", "--avail-easyconfig-params"), "`sifmod schema` prints every key of an easyconfig"),
    **dict.fromkeys(("--show-config", "--show-full-config"), "`sifmod config show` shows every setting"),
    "--check-conflicts": "`sifmod check FILE` validates an easyconfig",
    "--show-system-info": "`sifmod doctor` says what this machine is",
    "--list-software": "`sifmod search` lists what can be installed",
    "--list-installed-software": "`sifmod list` lists what is installed",
}


def meaning_of(word: str, known: Iterable[str], group: str = "") -> str:
    """The hint for an unknown command, of sifmod or of a group; "" where nothing is like it."""
    word = word.lower()
    if group:
        meant = _OF_GROUPS.get(group, {}).get(word)
        near = [meant] if meant else nearest(word, known)
        return _did_you_mean([f"{group} {each}" for each in near])
    if word.endswith((".yaml", ".yml", ".eb")):
        return "`sifmod install FILE` installs an easyconfig"
    return OTHER_TOOLS.get(word) or _did_you_mean(nearest(word, known))


def _did_you_mean(names: list[str]) -> str:
    return f"did you mean {' or '.join(f'`sifmod {name}`' for name in names)}?" if names else ""


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known words that differ by one typing error, in a long word by two; the nearest, at most three."""
    most = 1 if len(word) < 6 else 2
    found = [(distance, name) for name in known if (distance := _distance(word, name)) <= most]
    least = min(found)[0] if found else 0
    return [name for distance, name in sorted(found) if distance == least][:3]


def _distance(word: str, other: str) -> int:
    """How many letters are wrong, missing, too many, or swapped with the next one (optimal string alignment)."""
    before, last = list[int](), list(range(len(other) + 1))
    for row, letter in enumerate(word, 1):
        line = [row]
        for column, wanted in enumerate(other, 1):
            line.append(min(last[column] + 1, line[-1] + 1, last[column - 1] + (letter != wanted)))
            if before and column > 1 and (letter, word[row - 2]) == (other[column - 2], wanted):
                line[-1] = min(line[-1], before[column - 2] + 1)
        before, last = last, line
    return last[-1]
