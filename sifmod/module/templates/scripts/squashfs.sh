sifmod_root='' sifmod_prefix='' # come from what is read here:
{% include "scripts/place.sh" %}
set +f -u

module={{ module | shell }}
place=$sifmod_root{{ target }} # links, to where a reinstall changes nothing
PATH=$PATH:/usr/sbin:/sbin
part= # a directory of this user's own, beside the place
inside= # from when this script is in it, and writes `new` there by no path
running= # from before `run` starts its program: a signal may come as soon as there is a $!

# refuse CODE MESSAGE HINT
refuse() {
  printf '%s: %s\n\nhint: %s\n' "$module" "$2" "$3" >&2
  exit "$1"
}

# empty: removes what a run has written into the directory that this script is in.
empty() {
  if [ -d new ]; then chmod -R u+rwX new; fi
  rm -rf new writer
}

# drop: removes unfinished files.
drop() {
  if [ -n "$inside" ]; then
    empty
    cd /
  fi
  if [ -n "$part" ] && [ -O "$part" ]; then rmdir "$part"; fi
  inside='' part=''
}

# stop SIGNAL: ends as the signal would have.
stop() {
  trap '' HUP INT TERM
  if [ -n "$running" ] && [ -n "$!" ]; then
    kill -s KILL "$!" # TERM would be lost on a child that has not become the program yet
    wait "$!"
  fi 2>/dev/null
  drop
  trap - EXIT "$1"
  kill -s "$1" $$
}
trap drop EXIT
trap 'stop HUP' HUP
trap 'stop INT' INT
trap 'stop TERM' TERM

# this_machine: its name, and where its process ids count.
this_machine() {
  printf '%s %s' "$(uname -n)" "$(readlink /proc/self/ns/pid)"
}

# entered: the path of the current directory as the kernel knows it; bash looks at the path that it was given again.
entered() {
  readlink /proc/self/cwd
}

# cleared PART: removes what a run of this user's that was killed on this machine has left; fails for any other.
cleared() {
  (
    cd -P "$1" && [ -O . ] && [ "$(entered)" = "$1" ] && { read -r number machine && [ "$machine" = "$(this_machine)" ]; } <writer &&
      ! kill -0 "$number" && empty
  ) 2>/dev/null && rmdir "$1"
}

# begin PLACE: creates `part` and enters it; users who can write beside the place cannot write there, nor redirect what is
# written by a link. Removes files of this user's killed runs, and reports those that may be a running one's.
begin() {
  for left in "$1".part-*; do
    if [ -e "$left" ] && ! cleared "$left"; then
      printf 'note: %s is not finished; remove it unless another run is writing it\n' "$left" >&2
    fi
  done
  # the name is known before the directory exists, so that a signal leaves none; mkdir refuses an existing name
  if part=$(mktemp -u "$1.part-XXXXXXXX") && mkdir -m 700 "$part" && cd -P "$part" && [ -O . ] &&
    [ "$(entered)" = "$part" ]; then
    inside=yes
    printf '%s %s\n' "$$" "$(this_machine)" >writer || refuse 4 "$part/writer could not be written" 'is the disk full?'
  else
    refuse 4 "no directory could be made beside $1" 'the message of mktemp is above'
  fi
}

# run PROGRAM ARGUMENT...: a signal to this script ends it too.
run() {
  running=yes
  "$@" </dev/null >/dev/null &
  wait "$!" || refuse 4 "$1 failed with exit code $?; nothing has changed" 'its messages are above'
  running=
}

# as_open_as DIRECTORY CHANGE: gives `new` its mode, with the CHANGE, whatever the umask: colleagues use and replace it.
# Also its group, if this user is in that.
as_open_as() {
  chgrp "$(stat -c %g "$1")" new 2>/dev/null
  if ! { chmod "$(stat -c %a "$1")" new && chmod "$2" new; }; then
    refuse 4 "$part/new could not be opened to others" 'the message of chmod is above'
  fi
}

# quoted TEXT: as one word of a shell.
quoted() {
  printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

is_empty() {
  [ ! -d "$1" ] || [ -z "$(ls -A "$1")" ]
}

# plain PATH: without links and `..` in the directories above it, which exist.
plain() {
  above=$(cd -P "${1%/*}" 2>/dev/null && pwd) && printf '%s/%s' "$above" "${1##*/}"
}

# refuse_planted PATH: if it, or a directory above it in the tree, is a link of another user, who chose where it leads.
refuse_planted() {
  step=$1
  while :; do
    owner=$(stat -c %u "$step" 2>/dev/null) # of a link itself
    if [ -L "$step" ] && [ "$owner" != 0 ] && [ "$owner" != "$(id -u)" ]; then
      refuse 4 "$(plain "$step") is a link of $(id -un "$owner" 2>/dev/null || echo "user $owner")" \
        "remove it; a link of your own would be followed: rm $(quoted "$(plain "$step")")"
    fi
    step=${step%/*}
    case $step in "$sifmod_prefix"/*) ;; *) break ;; esac
  done
}

# end LINK: where this link of the module leads, which may be missing, in `target`.
end() {
  target=$1
  while [ -L "$target" ]; do
    link=$(readlink "$target")
    case $link in
      /*) target=$link ;;
      *) target=${target%/*}/$link ;;
    esac
    refuse_planted "$target"
  done
  target=$(plain "$target") || refuse 4 "what $place leads to is missing" {{ reinstall | here }}
}

if [ -d /.singularity.d ] && [ -n "${APPTAINER_CONTAINER-}${SINGULARITY_CONTAINER-}" ]; then
  refuse 1 "$name does not work inside a container" 'leave it first'
fi
if ! command -v "$program" >/dev/null; then
  refuse 127 "$program is not installed here" 'it is in the package squashfs-tools (squashfs on some systems); another node may have it'
fi
end "$place"
directory=$target
end "$place.squashfs"
squashfs=$target
