# older A B: whether version A is, by the numbers between its dots.
older() (
  a=$1. b=$2.
  while [ -n "$a$b" ]; do
    x=${a%%.*} y=${b%%.*}
    if [ "${x:-0}" -ne "${y:-0}" ]; then
      [ "${x:-0}" -lt "${y:-0}" ]
      exit
    fi
    a=${a#*.} b=${b#*.}
  done
  exit 1
)

# first_number WORD...: the version that the first word with one begins with, in `number`.
first_number() {
  number=
  for word; do
    case $word in
      [0-9]*.[0-9]*) number=${word%%[!0-9.]*} && return ;;
    esac
  done
}

# least_driver CUDA: of Linux, that runs programs of this version (NVIDIA's CUDA release notes: from 11 on any minor
# version with the driver of the first one); nothing for one before 8.
least_driver() {
  case $1 in
    13.*) echo 580.65.06 ;;
    12.*) echo 525.60.13 ;;
    11.0 | 11.0.*) echo 450.36.06 ;;
    11.*) echo 450.80.02 ;;
    10.2*) echo 440.33 ;;
    10.1*) echo 418.39 ;;
    10.0*) echo 410.48 ;;
    9.2*) echo 396.26 ;;
    9.1*) echo 390.46 ;;
    9.0*) echo 384.81 ;;
    8.0*) echo 367.48 ;;
    [1-9][0-9].*) echo 616 ;; # a major version to come: at least newer than the drivers of 13
  esac
}

# cuda_of DRIVER: the version of CUDA that came with it, or the last one known here.
cuda_of() (
  for known in 610:13.3 595:13.2 590:13.1 580:13.0 575:12.9 570:12.8 565:12.7 560:12.6 555:12.5 550:12.4 545:12.3 \
    535:12.2 530:12.1 525:12.0 520:11.8 515:11.7 510:11.6 495:11.5 470:11.4 465:11.3 460:11.2 455:11.1 450:11.0 440:10.2 \
    418:10.1 410:10.0; do
    if [ "${1%%.*}" -ge "${known%:*}" ]; then echo "${known#*:}" && exit; fi
  done
)
