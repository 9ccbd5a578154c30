case $0 in */*) sifmod_bin=${0%/*} ;; *) sifmod_bin=. ;; esac
if [ -L "$0" ]; then sifmod_bin=$(readlink -f "$0") && sifmod_bin=${sifmod_bin%/*}; fi # a link from elsewhere
if [ ! -e "$sifmod_bin/../{{ launcher }}" ]; then
  printf '%s: its module is not around it\n\nhint: %s\n' "$0" 'a link to it works anywhere, a copy does not' >&2
  exit 127
fi
. "$sifmod_bin/../{{ launcher }}"
