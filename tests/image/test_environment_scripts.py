"""What environment scripts export, read without a shell: as a runtime's shell has it, or left out and named."""

import pytest

from sifmod.image.inspect.environment_scripts import DEFAULT_PATH, ScriptedEnvironment, read_scripts

Read = dict[str, str]


def read(script: str, **config: str) -> ScriptedEnvironment:
    return read_scripts({"90-environment.sh": script}, config)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('export A="x y"\n', {"A": "x y"}),
        ('export LANG="${LANG:-"C.UTF-8"}"\n', {"LANG": "C.UTF-8"}),
        ("export A=${A:-'b c'}\n", {"A": "b c"}),
        ("A=1\nB=2\nexport B\n", {"B": "2"}),
        ("export A='it'\"'\"'s\nexport B=no'\nexport C=yes\n", {"A": "it's\nexport B=no", "C": "yes"}),
        ('export P="/opt/bin:$PATH"; export Q=1', {"P": f"/opt/bin:{DEFAULT_PATH}", "Q": "1"}),
        ("export PATH=/opt/x/bin:$PATH", {"PATH": f"/opt/x/bin:{DEFAULT_PATH}"}),
        ("export CUDA_HOME=/usr/cuda\nexport CUDA=$CUDA_HOME", {"CUDA_HOME": "/usr/cuda", "CUDA": "/usr/cuda"}),
        ("export A=1 B=2", {"A": "1", "B": "2"}),
        ("readonly A=1\nexport A", {"A": "1"}),
        ("export A=1 \\\n  B=2", {"A": "1", "B": "2"}),
        ("cat <<EOF >/dev/null\nexport A=1\nEOF\nexport B=1", {"B": "1"}),
        ("cat <<-'EOF' >/dev/null\n\texport A=1\n\tEOF\nexport B=1", {"B": "1"}),
        ('export A="a\\"b\\\\c\\n"', {"A": 'a"b\\c\\n'}),
        ("echo export A=1\n", {}),
        ("# export A=1\n", {}),
        ("export A=1\nA=2\n", {"A": "2"}),
        ("A=1; export A B\nB='2'\n", {"A": "1", "B": "2"}),
        ("A=1 && export A", {"A": "1"}),
        ("export A=b\\\nc", {"A": "bc"}),
        ("export PATH= LD_LIBRARY_PATH= A=", {"A": ""}),
        ('export A="\\$x\\`\\"\\\\ \\a"', {"A": '$x`"\\ \\a'}),
        ("export A=\"it's\"'\"'", {"A": "it's\""}),
        ("export A=''b", {"A": "b"}),
        ("export A=${B:-x}${B+y}", {"A": "x"}),
        ('export A=${A:-"b}c"}d', {"A": "b}cd"}),
        ("export A=1\nunset A", {}),
        ("export A=1\nexport A+=2", {"A": "12"}),
        ("export A=1\nreturn\nexport A=2", {"A": "1"}),
        ("export A=\"x$(printf '\\r')\"", {"A": "x\r"}),
        ("LD_LIBRARY_PATH=/opt/lib", {"LD_LIBRARY_PATH": "/opt/lib"}),  # which the runtime exports
        ("export A=x#y # z", {"A": "x#y"}),
        ("export HOME=/opt\nexport A=$HOME", {"HOME": "/opt", "A": "/opt"}),
    ],
)
def test_what_is_exported(script: str, expected: Read) -> None:
    found = read(script)
    assert (found.variables, found.notes) == (expected, ())


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("export A=$(pwd)", ("A",)),
        ("export A=`pwd`", ("A",)),
        ("export A=$HOME/x", ("A",)),
        ("export A=~/x", ("A",)),
        ("export A=/b:~/x", ("A",)),
        ("export A=$((1 + 1))", ("A",)),
        ("export A=${B%x}", ("A",)),
        ("export A=$UID", ("A",)),
        ("export A=a\\ b", ("A",)),
        ("export A=1\n[ -d /x ] && export A=2", ("A",)),
        ('[ -n "${HOME:-}" ] || export HOME=/x', ("HOME",)),
        ("if true; then\nexport A=1\nfi", ("A",)),
        ("for A in b c; do export B=$A; done", ("B",)),
        ("case $B in\n(x) export A=1 ;;\ny) ;;\nesac", ("A",)),
        ("f() {\nexport A=1\n}\nf", ("A",)),
        ("export A\nread A <<EOF\nx\nEOF", ("A",)),
        ("export A=1 >/dev/null", ("A",)),
        ("export A=$(pwd) B=1 C=$A", ("A", "C")),
        ("readonly A=1\nexport A=2", ("A",)),
        ("[ -d /x ] && return\nexport A=1", ("A",)),
        ("set -e\nexport A=1", ("A",)),
        ("set -a\nA=1", ("A",)),
        ("declare -x A=1", ("A",)),
        ("export A=${B:=c}\nexport B", ("A", "B")),
        ("[ -d /x ] && PATH=/x", ("PATH",)),
    ],
)
def test_what_only_a_shell_can_compute_is_left_out_and_named(script: str, names: tuple[str, ...]) -> None:
    found = read(script)
    assert (found.left_out, names) == (names, names)
    assert not set(names) & found.variables.keys()
    assert found.notes == (f"left out of the environment, because only a shell can compute them: {', '.join(names)}",)


@pytest.mark.parametrize(
    ("script", "unread"),
    [
        (". /opt/setvars.sh", ". /opt/setvars.sh"),
        ("[ -f /x ] && source /x >/dev/null", "source /x > /dev/null"),
        ("if true; then eval $B; fi", "eval $B"),
        ("export $(cat /x)", "export $(cat /x)"),
        ("A='", "90-environment.sh"),
        ("if true; then", "90-environment.sh"),
        ("export A=$'x'", "90-environment.sh"),
        ('cat <<E"O"F\nEOF', "90-environment.sh"),
        ("function f { A=1; }", "90-environment.sh"),
    ],
)
def test_what_is_not_read_is_named(script: str, unread: str) -> None:
    found = read(f"export Z=1\n{script}")
    assert found.unread == (unread,)
    assert found.notes[-1] == f"the effect on the environment is unknown: {unread}"
    assert ("Z" in found.variables) == (unread != "90-environment.sh")


def test_what_was_unknown_is_known_after_an_assignment() -> None:
    assert read("export A=$(pwd)\nA=1").variables == {"A": "1"}


def test_the_variables_of_an_oci_image_are_exact() -> None:
    found = read_scripts({"10-docker2singularity.sh": "export A=`x`", "90-environment.sh": "#!/bin/sh\n"}, {"A": "$x`"})
    assert (dict(found.variables), found.notes, found.does_nothing) == ({"A": "$x`"}, (), True)
    assert dict(read("export B=$A$PATH", A="$x", PATH="/a").variables) == {
        "A": "$x",
        "PATH": "/a",
        "B": "$x/a",
    }


def test_the_default_path_is_added_where_the_runtimes_do_it() -> None:
    """Behind an OCI image's, where a directory is missing; before the definition's script where there is no other."""
    scripts = {"10-docker2singularity.sh": "export PATH=/a:/usr/bin", "90-environment.sh": "export PATH=/b:$PATH"}
    rest = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
    assert read_scripts(scripts, {}).variables["PATH"] == f"/b:/a:/usr/bin:{rest}"
    assert read_scripts(scripts, {"PATH": "/c"}).variables["PATH"] == f"/b:/c:{DEFAULT_PATH}"
    assert read_scripts({"50-own.sh": "export PATH=/b:$PATH"}, {}).variables["PATH"] == "/b:"


_ODD = ('${A:-"', "'", '"', "\\", "export A=", "${A:-", "export A='\n", "$(", "{ ", "<<E\n", "`", "(", "case x in ")


@pytest.mark.parametrize("piece", _ODD)
def test_a_hostile_script_ends(piece: str) -> None:
    read("export A=" + piece * 50_000)


def test_many_unknown_variables() -> None:
    """Each expansion copied their names: a hundred scripts of 256 KiB took days."""
    unknown = tuple(sorted(f"v{number}" for number in range(15_000)))
    found = read("".join(f"export {name}=$(x)\n" for name in unknown) + "export B=b" + "$x" * 100_000)
    assert (found.variables["B"], found.left_out) == ("b", unknown)


def test_values_that_grow_without_end_are_left_out() -> None:
    found = read("export A=xxxxxxxx\n" + "export A=$A$A B=$A\n" * 5_000)
    assert found.left_out == ("A", "B")
