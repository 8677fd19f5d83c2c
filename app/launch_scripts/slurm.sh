#!/bin/bash
#SBATCH --job-name=@name@
#SBATCH --nodes=@nodes@
#SBATCH --ntasks-per-node=@ranks@
@gpus@#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=@name@-%j.log
set -u
cd @folder@ || exit
MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
export MASTER_ADDR MASTER_PORT="$((20000 + SLURM_JOB_ID % 20000))"
QTRAIN_RANK_SECRET="$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')"  # authenticates the ranks
export QTRAIN_RANK_SECRET
srun @command@
code=$?
# Exit code 75: stopped by a signal, for example shortly before the time limit. Requeue the job, which then resumes
# from its checkpoint.
if [ "$code" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
