"""Another host: a UTS namespace with a host name of its own, so that it cannot ask about our processes."""

import os


def on_host(name: str) -> tuple[str, ...]:
    """The beginning of a command line that runs on a host of this name."""
    become_root = () if os.geteuid() == 0 else ("--map-root-user",)
    return ("/usr/bin/unshare", "--uts", *become_root, "/bin/sh", "-c", f'/bin/hostname {name} && exec "$@"', "sh")
