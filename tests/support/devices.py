"""A /dev of a test's own with device files of GPUs in it.

No machine of the tests has a GPU: a plain file with the device's name stands for it, in a mount namespace of its own.
"""

from pathlib import Path

_OWN_DEV = """
mount -t tmpfs -o mode=0755 none "$1"
mkdir "$1/shm" "$1/pts"
ln -s /proc/self/fd "$1/fd"
for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%:*}" "$1/${number#*:}"; done
for device in null zero full random urandom tty fuse; do : >"$1/$device"; done
# a mount that another test has made below /dev/shm may not be left out of it here
for device in null zero full random urandom tty fuse shm pts; do mount --rbind "/dev/$device" "$1/$device"; done
for device in $2; do : >"$1/$device"; done
mount --rbind "$1" /dev
shift 2
exec "$@"
"""


def with_devices(scratch: Path, devices: str) -> tuple[str | Path, ...]:
    """The words before a command that runs it where /dev has these devices too; `scratch` is an empty directory."""
    own = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", _OWN_DEV, "sh")
    return (*own, scratch, devices)
