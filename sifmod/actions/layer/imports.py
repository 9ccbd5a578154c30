"""Try to import the packages added to a layer, in the image, before anyone loads it."""

import json
import re
import signal
from collections.abc import Iterator

from sifmod.actions.layer.inside import Inside
from sifmod.errors import OptionError
from sifmod.image.packages.image_python import ImagePython
from sifmod.image.packages.resolve import Resolved
from sifmod.image.packages.torch_index import TorchIndex
from sifmod.secret import cut

_SECONDS = 20
# Runs in a temporary home, without GPUs and without a network: in namespaces of its own where the machine allows them,
# and Python refuses to connect in any case.
_CODE = """
import sys, os, signal, tempfile, json, site
seconds, lib, answer, *names = sys.argv[1:]
def apart():
    import ctypes
    user, group, networks_and_processes = os.geteuid(), os.getegid(), 0x40000000 | 0x20000000
    if ctypes.CDLL(None).unshare(networks_and_processes | (0x10000000 if user else 0)):
        raise OSError
    ids = (("setgroups", "deny"), ("uid_map", "%d %d 1" % (user, user)), ("gid_map", "%d %d 1" % (group, group)))
    for name, text in ids if user else ():
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
def can_be_apart():  # not on every machine, and what was begun cannot be undone
    probe = os.fork()
    if probe:
        return os.waitpid(probe, 0)[1] == 0
    try:
        apart()
        os._exit(0)
    finally:
        os._exit(1)
def wait(process):
    status = os.waitpid(process, 0)[1]
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
if can_be_apart():
    apart()
    first = os.fork()  # with the first process of them all others end
    if first:
        def end(number, frame):
            os.kill(first, signal.SIGKILL)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        signal.signal(signal.SIGALRM, end)
        signal.alarm(int(seconds))
        wait(first)
    tries = os.fork()  # signals do not end the first one
    if tries:
        wait(tries)
home = tempfile.mkdtemp(dir=os.path.dirname(answer))
os.environ.update(HOME=home, XDG_CACHE_HOME=home, XDG_CONFIG_HOME=home, XDG_DATA_HOME=home, MPLCONFIGDIR=home)
for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:  # among them logins of indexes
    del os.environ[name]
os.environ.update(dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), ""))
def refuse(event, arguments):
    away = event in ("socket.connect", "socket.sendto") and not isinstance(arguments[-1], (str, bytes))
    if away or event == "socket.getaddrinfo":
        raise OSError("there is no network while an import is tried")
sys.addaudithook(refuse)
before = list(sys.path)
site.addsitedir(lib)
added = [place for place in sys.path if place not in before]
first = [i for i, place in enumerate(before) if place.endswith(("site-packages", "dist-packages"))] or [len(before)]
sys.path[:] = before[:first[0]] + added + before[first[0]:]
import importlib, importlib.metadata
def modules(name):
    found = []
    for file in importlib.metadata.distribution(name).files or ():
        top = file.parts[0]
        if len(file.parts) == 1 and top.endswith((".py", ".so")):
            found.append(top.split(".")[0])
        elif len(file.parts) == 2 and file.parts[1] == "__init__.py":
            found.append(top)
    return [each for each in dict.fromkeys(found) if each.isidentifier()]
signal.alarm(int(seconds))
failures = {}
for name in names:
    failures[name] = ""
    json.dump(failures, open(answer, "w"))
    try:
        for module in modules(name):
            importlib.import_module(module)
        del failures[name]
    except BaseException as error:
        failures[name] = "%s: %s" % (type(error).__name__, error)
    json.dump(failures, open(answer, "w"))
os._exit(0)
"""
# errors of packages compiled against another version of an image's package
_MISFIT = re.compile(r"undefined symbol|symbol not found|operator \S+ does not exist|ABI version|binary incompatib")


def tried_imports(
    inside: Inside, python: ImagePython, resolved: Resolved, names: tuple[str, ...], index: TorchIndex
) -> Iterator[str]:
    """Warnings about importing the packages `names` from `lib`.

    Raises OptionError for a package built against another version of an image's package. A missing driver library or an
    import that takes longer than 20 seconds is not an error.
    """
    answer = inside.directory / "work" / "imports.json"
    answer.write_text("{}")
    place = f"{inside.target}/work/{answer.name}"
    ended = inside.python("-B", "-c", _CODE, str(_SECONDS), f"{inside.target}/lib", place, *names)
    try:
        failures = {str(name): str(why) for name, why in json.loads(answer.read_text()).items()}
    except (ValueError, AttributeError):
        failures = {}
    if not failures and ended.code != 0:
        yield f"warning: the imports could not be tried: {' '.join(ended.lines[-1:])}"
    for name, why in failures.items():
        late = ended.code in (-signal.SIGALRM, 128 + signal.SIGALRM)
        ends = f"it takes longer than {_SECONDS} seconds" if late else f"Python exited with code {ended.code}"
        reason = cut(" ".join(why.split()), 300) or ends
        if (first := python.first) and _MISFIT.search(reason):
            raise OptionError(
                f"{name} {resolved.added[name]}".rstrip() + " was built for something else than"
                f" the image's {first.name} {first.version}: {reason}",
                f"name a version that fits, or {_index(index)}; --no-import adds it anyway",
            )
        yield f"warning: {name} cannot be imported here: {reason}"


def _index(index: TorchIndex) -> str:
    """How to name the index with packages for the image's torch."""
    if not index.local or index.url:
        return "the index that has packages for it: --extra-index-url URL"
    return (
        f"the index that has packages for {index.local}: --extra-index-url URL, or for all users `package_indexes: "
        f"{{{index.local}: URL}}` in the site's file"
    )
