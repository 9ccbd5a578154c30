"""An image that umoci made of a changing root file system: what a builder writes, which is not what we would."""

from pathlib import Path

from support.command import run
from support.filesystem import AS_ROOT
from support.ustar import MTIME

# each is done in the unpacked root file system of the image so far, and becomes a layer
STEPS = (
    """
    mkdir -p bin dev etc home proc root sys tmp usr/lib/old usr/share/doc var/tmp opt/app
    chmod 1777 tmp var/tmp
    echo root:x:0:0:root:/root:/bin/sh >etc/passwd
    echo root:x:0: >etc/group
    echo 127.0.0.1 localhost >etc/hosts
    echo nameserver 127.0.0.1 >etc/resolv.conf
    cp /bin/busybox bin/busybox
    for name in sh cat ls env; do ln bin/busybox "bin/$name"; done
    for number in 1 2 3; do seq "$number"00000 >"usr/lib/old/$number"; done
    ln -s usr/lib lib
    ln usr/lib/old/1 usr/share/doc/same
    printf setuid >opt/app/setuid && chmod 4755 opt/app/setuid
    printf owned >opt/app/owned && chown 1000:1001 opt/app/owned
    setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 opt/app/owned
    setfattr -n user.note -v 'first build' opt/app
    setfattr -n trusted.kept -v 0x00ff opt/app/setuid
    mknod opt/app/null c 1 3
    mkfifo opt/app/pipe
    truncate -s 3M opt/app/sparse && printf end >>opt/app/sparse
    touch "opt/app/$(printf 'latin-\\351')" 'opt/app/two
lines'
    """,
    """
    rm -r usr/lib/old
    rm usr/share/doc/same
    rmdir usr/share/doc && printf 'now a file' >usr/share/doc
    rm bin/ls && mkdir bin/ls && printf inside >bin/ls/inside
    chmod 0700 opt/app
    setfattr -x user.note opt/app
    ln opt/app/owned opt/another-name
    """,
    """
    mkdir -p usr/lib/old && printf again >usr/lib/old/1
    rm -r bin/ls && ln -s busybox bin/ls
    rm usr/share/doc
    touch -d @1500000000 opt/app/setuid opt/app
    touch -h -d @1500000001 lib
    chown -h 7:8 lib
    mkdir -p opt/many/0 opt/many/1 opt/many/2
    for number in $(seq 300); do echo "$number" >"opt/many/$((number % 3))/$number"; done
    """,
)
# at the end of each: nothing was made just now
AGED = f"find . -newermt 2024-01-01 -exec touch -h -d @{MTIME} {{}} +"


def build(layout: Path) -> None:
    """Make `layout` an OCI layout of three layers, by root, with the tag `made`."""
    image, bundle = f"{layout}:made", layout.with_name(f"{layout.name}.bundle")
    run((*AS_ROOT, "umoci", "init", "--layout", layout)).ok()
    run((*AS_ROOT, "umoci", "new", "--image", image)).ok()
    for step in STEPS:
        run((*AS_ROOT, "umoci", "unpack", "--image", image, bundle)).ok()
        run((*AS_ROOT, "sh", "-euc", f'cd "$0"\n{step}{AGED}', bundle / "rootfs")).ok()
        run((*AS_ROOT, "umoci", "repack", "--image", image, bundle)).ok()
        run((*AS_ROOT, "rm", "-rf", bundle)).ok()
    created = "2025-01-01T00:00:00Z"
    run((*AS_ROOT, "umoci", "config", "--image", image, f"--created={created}", "--architecture=amd64")).ok()
    run((*AS_ROOT, "chmod", "-R", "a+rX", layout)).ok()
