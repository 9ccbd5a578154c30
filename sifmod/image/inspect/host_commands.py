"""The names of common host programs, which a wrapper must not hide unless the user asks for it."""

_LISTED = """
# shells
sh bash dash ash zsh ksh mksh csh tcsh fish busybox env login su sudo doas newgrp sg passwd
# words that a shell reads itself
activate deactivate . source exec eval exit export set unset shift trap alias type ulimit return break continue case
do done elif else esac fi for function if in select then until while coproc foreach end endif endsw switch breaksw
default goto onintr repeat begin not and or [[ ! : bind builtin caller complete compgen compopt declare dirs disown
enable help history let local logout mapfile popd pushd readarray readonly shopt suspend times typeset autoload
bindkey emulate noglob print rehash setopt unsetopt unfunction zmodload limit unlimit notify setenv unsetenv stop
# POSIX
[ ar at awk basename batch bc bg c99 cal cat cd cflow chgrp chmod chown cksum cmp comm command compress cp crontab
csplit ctags cut cxref date dd df diff dirname du echo ed ex expand expr false fc fg file find fold fuser gencat
getconf getopts grep hash head iconv id ipcrm ipcs jobs join kill lex link ln locale localedef logger logname lp ls m4
mailx make man mesg mkdir mkfifo more mv newgrp nice nl nm nohup od paste patch pathchk pax pr printf ps pwd read
renice rm rmdir sed sleep sort split strings strip stty tabs tail talk tee test time touch tput tr true tsort tty
umask unalias uname uncompress unexpand uniq unlink uudecode uuencode vi wait wc who write xargs yacc
# GNU and Linux
arch b2sum base32 base64 chcon chroot dir dircolors egrep factor fgrep gawk groups hostid hostname install md5sum
mktemp mknod nproc numfmt pinky ptx readlink realpath runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum shred
shuf stat stdbuf sum sync tac timeout truncate users vdir whoami yes clear reset toe tic infocmp tset chrt column
dmesg flock getent getopt hexdump ionice kmod less lesskey lsblk lscpu lsmem lsof lspci mount mountpoint nsenter
numactl numastat perf pgrep pidof pidwait pkill pmap prlimit rename rev script scriptreplay setsid setpriv slabtop
strace sysctl systemctl taskset top htop umount unshare uptime vmstat w watch whereis which ldd ldconfig locale-gen ip
ss ping netstat nc nslookup dig host
# daily use
7z bunzip2 bzcat bzip2 cpio gunzip gzip lz4 pigz tar uncompress unxz unzip unzstd xz xzcat zcat zip zstd curl wget ssh
scp sftp rsync ssh-add ssh-agent ssh-keygen gpg gpg2 openssl git git-lfs svn hg tmux screen vim vimdiff view nano
emacs emacsclient xterm perl tclsh wish lua jq sqlite3 tree parallel mail xauth xdg-open killall
# builds
as c++ c89 cc cpp g++ gcc gfortran gdb ld clang clang++ clang-cpp ccache cmake ctest ninja meson pkg-config autoconf
automake libtool ranlib objcopy objdump readelf addr2line c++filt elfedit gprof size flex bison
# compilers
CC ftn c77 f77 f90 f95 f2003 f2008 flang flang-new fc armclang armclang++ armflang amdclang amdclang++ amdflang icc
icpc ifort icx icpx ifx dpcpp nvc nvc++ nvfortran pgcc pgc++ pgfortran xlc xlC xlf craycc crayCC crayftn nvcc cudafe++
ptxas fatbinary nvlink cuobjdump nvdisasm cuda-gdb compute-sanitizer nsys ncu nvprof hipcc hipconfig rocgdb rocprof
rocprofv2 rocprofv3 lldb valgrind
# GPUs
nvidia-smi nvidia-debugdump nvidia-persistenced nvidia-settings nvidia-cuda-mps-control nvidia-cuda-mps-server
nvidia-ctk dcgmi nvtop rocm-smi amd-smi rocminfo rocm_agent_enumerator clinfo vulkaninfo xpu-smi
# the fabric
ibstat ibstatus ibdev2netdev ibhosts iblinkinfo ibnetdiscover ibping ibv_devices ibv_devinfo ib_read_bw ib_read_lat
ib_send_bw ib_send_lat ib_write_bw ib_write_lat ofed_info opainfo perfquery rdma show_gids sminfo ucx_info
ucx_perftest fi_info fi_pingpong cxi_stat cxi_service ethtool
# file systems
mksquashfs unsquashfs sqfscat sqfstar squashfuse squashfuse_ll make-squashfs unmake-squashfs fuse-overlayfs fuse2fs
fusermount fusermount3 sshfs mkfs fsck blkid findmnt losetup exportfs nfsstat lctl lnetctl lfs_migrate mmlsfs
mmlsquota mmlsattr beegfs-ctl beegfs-df beeond rclone s3cmd globus
# clouds and environments
aws az gcloud gsutil kubectl helm conda mamba micromamba
# the machine
free iostat mpstat pidstat sar iotop nmon lshw dmidecode lstopo lstopo-no-graphics hwloc-bind hwloc-info hwloc-ls
cpupower turbostat sensors ipmitool
# MPI
mpirun mpiexec mpiexec.hydra orterun prun prterun oshrun mpicc mpicxx mpic++ mpif77 mpif90 mpifort
# the site: jobs, containers, modules
sacct sacctmgr salloc sattach sbatch sbcast scancel scontrol sdiag sinfo sprio squeue sreport srun sshare sstat
strigger sview scrontab sh5util qsub qstat qdel qalter qhold qrls qhost qrsh pbsnodes bsub bjobs bkill bqueues bhosts
bpeek flux aprun jsrun ibrun lrun condor_q condor_submit condor_rm shifter sarus ch-run crun runc buildah skopeo
nerdctl podman-hpc apptainer singularity run-singularity docker podman enroot module ml modulecmd lmod eb sifmod spack
nix lfs quota kinit klist munge
# rights, passwords and keys
chsh chfn gpasswd pkexec run0 runuser sudoedit visudo newuidmap newgidmap gpgv gpgsm pinentry pass vault op bw
secret-tool sshpass sshd mosh ksu kpasswd kdestroy systemd-run systemd-ask-password loginctl machinectl bwrap setfacl
getfacl nvidia-container-cli nvidia-modprobe slurmd munged
"""
_NAMES = frozenset(word for line in _LISTED.splitlines() if not line.startswith("#") for word in line.split())
# programs that other programs start by their name, or that see passwords and keys
_FAMILIES = ("docker-credential-", "git-credential-", "git-remote-", "gpg-", "pinentry-", "ssh-", "nvidia-container-")


def is_host_command(name: str) -> bool:
    """Whether this is the name of a common host program."""
    return name in _NAMES or name.startswith(_FAMILIES)
