# What started this process, in `launcher`, and which of how many it is, in `rank`, `size`, `local_rank`, `local_size`, `nodes` and
# `node`; the last three are empty where nothing says them. `id` names the run. The variables are each launcher's own
# (docs/runscripts.md). Only rank, size and local rank together count: Slurm on Cray sets some of PALS's, srun with PMI-2 some of Hydra's.
launcher='' rank='' size='' local_rank='' local_size='' nodes='' node='' id='' live='' incomplete=''

refuse() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 2
}

# found NAME LIVE RANK SIZE LOCAL_RANK LOCAL_SIZE NODES NODE ID: what one launcher says. LIVE is yes, no (what it set was left over
# by another run) or empty where that cannot be seen. Of two that contradict each other the live one counts, else the first that
# is known to be live.
found() {
  case $3,$4,$5 in
    ,* | *,,* | *, | *[!0-9,]*)
      case $4 in '' | 0 | 1 | *[!0-9]*) ;; *) incomplete=${incomplete:-"$1 says that there are $4 processes, and not which one this is"} ;; esac
      return 0
      ;;
  esac
  if [ "$2" = no ]; then return 0; fi
  if [ -n "$launcher" ]; then
    if [ "$rank,$size,$local_rank" = "$3,$4,$5" ] || [ "$live" = yes ]; then return 0; fi
    if [ "$2" != yes ]; then
      refuse "$launcher says that this is process $rank of $size, and $1 that it is $3 of $4:" \
        'unset the variables of the one that did not start it'
    fi
  fi
  launcher=$1 live=$2 rank=$3 size=$4 local_rank=$5 local_size=$6 nodes=$7 node=$8 id=$9
}

# Of mpirun there is its directory, and PMIx's name for a step of srun says whose it is.
ompi=
if [ -d "${PMIX_SERVER_TMPDIR-}" ]; then ompi=yes; fi
case ${PMIX_NAMESPACE-} in slurm.pmix.*) ompi=no ;; esac
hydra=
if [ -n "${PMI_FD-}" ]; then hydra=no; fi
if [ -n "${PMI_FD-}" ] && [ -S "/proc/self/fd/$PMI_FD" ]; then hydra=yes; fi
# The step in which mpirun starts its own daemons has one task on each node.
step=
if [ "${SLURM_STEP_NUM_TASKS:-0}" -gt "${SLURM_STEP_NUM_NODES:-0}" ]; then step=yes; fi
flux=${FLUX_URI-}
if [ -S "${flux#local://}" ]; then flux=yes; else flux=; fi

{% if each_is_a_rank %}
if [ -n "${TORCHELASTIC_RUN_ID-}" ]; then
  found torchrun yes "${RANK-}" "${WORLD_SIZE-}" "${LOCAL_RANK-}" "${LOCAL_WORLD_SIZE-}" '' "${GROUP_RANK-}" "$TORCHELASTIC_RUN_ID"
fi
{% endif %}
found 'Open MPI' "$ompi" "${OMPI_COMM_WORLD_RANK-}" "${OMPI_COMM_WORLD_SIZE-}" "${OMPI_COMM_WORLD_LOCAL_RANK-}" \
  "${OMPI_COMM_WORLD_LOCAL_SIZE-}" '' '' "${PMIX_NAMESPACE-}"
found MVAPICH '' "${MV2_COMM_WORLD_RANK-}" "${MV2_COMM_WORLD_SIZE-}" "${MV2_COMM_WORLD_LOCAL_RANK-}" \
  "${MV2_COMM_WORLD_LOCAL_SIZE-}" '' '' ''
found 'MPICH (Hydra)' "$hydra" "${PMI_RANK-}" "${PMI_SIZE-}" "${MPI_LOCALRANKID-}" "${MPI_LOCALNRANKS-}" '' '' ''
found jsrun '' "${JSM_NAMESPACE_RANK-}" "${JSM_NAMESPACE_SIZE-}" "${JSM_NAMESPACE_LOCAL_RANK-}" \
  "${OMPI_COMM_WORLD_LOCAL_SIZE-}" '' '' "${LSB_JOBID-}"
found Flux "$flux" "${FLUX_TASK_RANK-}" "${FLUX_JOB_SIZE-}" "${FLUX_TASK_LOCAL_ID-}" '' "${FLUX_JOB_NNODES-}" '' "${FLUX_JOB_ID-}"
found PALS '' "${PALS_RANKID-}" "${PMI_SIZE-}" "${PALS_LOCAL_RANKID-}" "${PALS_LOCAL_SIZE-}" '' "${PALS_NODEID-}" "${PALS_APID-}"
tasks=
if [ -n "${SLURM_STEP_TASKS_PER_NODE-}" ] && [ -n "${SLURM_NODEID-}" ]; then
  tasks=$(tasks_on "$SLURM_NODEID" "$SLURM_STEP_TASKS_PER_NODE")
fi
found srun "$step" "${SLURM_PROCID-}" "${SLURM_STEP_NUM_TASKS-}" "${SLURM_LOCALID-}" "$tasks" "${SLURM_STEP_NUM_NODES-}" \
  "${SLURM_NODEID-}" ''
{% if each_is_a_rank %}
if [ -z "$launcher" ]; then
  found 'RANK and WORLD_SIZE' yes "${RANK-}" "${WORLD_SIZE-}" "${LOCAL_RANK-}" "${LOCAL_WORLD_SIZE-}" '' "${NODE_RANK-}" ''
fi
{% endif %}

if [ -z "$launcher" ] && [ -n "$incomplete" ]; then
  refuse "$incomplete: export RANK, WORLD_SIZE and LOCAL_RANK, or start it with srun or mpirun"
fi
{% if each_is_a_rank %}
if [ -n "${WORLD_SIZE-}" ] && [ "$WORLD_SIZE" != "${size:-1}" ]; then
  refuse "WORLD_SIZE is $WORLD_SIZE, and ${launcher:-a start without a launcher} says ${size:-1}: unset WORLD_SIZE, RANK and LOCAL_RANK"
fi
if [ -n "${RANK-}" ] && [ "$RANK" != "${rank:-0}" ]; then
  refuse "RANK is $RANK, and ${launcher:-a start without a launcher} says ${rank:-0}: unset WORLD_SIZE, RANK and LOCAL_RANK"
fi
{% endif %}
if [ "${size:-1}" = 1 ] || { [ -n "$size" ] && [ "$size" = "$local_size" ]; }; then nodes=1 node=0; fi
if [ "$nodes" = 1 ]; then local_size=${size:-1} node=0; fi

# number TEXT: of the name of a run, the same in each of its processes.
number() (
  rest=$1 sum=0
  while [ -n "$rest" ]; do
    next=${rest#?}
    case ${rest%"$next"} in
      [A-Za-z0-9]) sum=$(((sum * 31 + $(printf %d "'${rest%"$next"}")) % 1000003)) ;;
    esac
    rest=$next
  done
  echo "$sum"
)

# ancestor: the process that started those of this node, by its name; a container may hide what else is known of it.
ancestor() (
  pid=$PPID
  while [ "$pid" -gt 1 ] && IFS= read -r line <"/proc/$pid/stat"; do
    name=${line#*'('}
    case ${name%')'*} in
      mpirun | mpiexec | mpiexec.hydra | orterun | orted | prterun | prted | prte | hydra_pmi_proxy | pmi_proxy | mpispawn | \
        mpirun_rsh | palsd | jsmd | flux-shell) echo "$pid" && exit ;;
    esac
    # shellcheck disable=SC2086 # state, parent, …
    set -- ${line##*')'}
    pid=$2
  done
) 2>/dev/null

# master_address: where the first process is.
master_address() {
  if [ "$launcher" = srun ]; then
    "${0%/*}/get-master"
  elif [ "$nodes" = 1 ]; then
    echo 127.0.0.1
  elif [ -n "${SLURM_JOB_NODELIST-}" ] && [ "$launcher" != 'RANK and WORLD_SIZE' ]; then
    first=$("${0%/*}/get-master" "$SLURM_JOB_NODELIST") || return
    if [ "$rank" = 0 ] && [ "${SLURMD_NODENAME:-$first}" != "$first" ]; then
      refuse "process 0 is on $SLURMD_NODENAME, which is not the job's first node: export MASTER_ADDR=$SLURMD_NODENAME for all processes"
    fi
    echo "$first"
  else
    refuse "$launcher does not say where process 0 is: export MASTER_ADDR in the job script, for instance" \
      "$(
        case ${PBS_NODEFILE:+p}${FLUX_JOB_ID:+f} in
          p*) echo "MASTER_ADDR=\$(head -n1 \$PBS_NODEFILE)" ;;
          f) echo "MASTER_ADDR=\$(flux hostlist -n 0 local)" ;;
          *) echo "MASTER_ADDR=\$(hostname)" ;;
        esac
      )$([ "$launcher" != 'Open MPI' ] || echo ', and start it with mpirun -x MASTER_ADDR')"
  fi
}

# master_port: one that is free most likely, the same in all processes of this run, and another one in other runs.
master_port() {
  job=${SLURM_JOB_ID:-${PBS_JOBID:-${LSB_JOBID:-${FLUX_JOB_ID-}}}}
  if [ "$launcher" = srun ]; then
    port "$SLURM_JOB_ID" "$SLURM_STEP_ID"
  elif [ "${size:-1}" = 1 ]; then
    port $$ 0
  elif [ -n "$id" ]; then
    port "$(number "$id")" 0
  elif [ "$nodes" = 1 ] && [ -n "$(ancestor)" ]; then
    port "$(ancestor)" "$(number "$job")"
  elif [ -n "$job" ]; then
    port "$(number "$job")" 1
  else
    refuse "$launcher gives this run no name from which a port could be computed: export one MASTER_PORT for all processes"
  fi
}
