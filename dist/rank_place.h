#pragma once
#include <optional>
#include <string>
#include <vector>

#include "dist/socket.h"

namespace qtrain {

/// The position of this process among those of a run.
struct RankPlace {
  int rank = 0, size = 1;              ///< over all machines
  int local_rank = 0, local_size = 1;  ///< on this machine
  Endpoint store;                      ///< where the ranks meet
  int attempt = 0;                     ///< how often qtrain's launcher started the run before
  bool serves_store = false;           ///< whether this rank must run the store, because no launcher does
  std::string launcher;                ///< what started it: "qtrain", "torchrun", "Slurm", "Open MPI"
};

/// Reads the place from the environment: the variables of qtrain's launcher, of torchrun (and of Kubernetes'
/// PyTorchJob, which uses the same), of Slurm's srun, or of Open MPI's mpirun. Returns nothing for a process that was
/// started by itself. Throws ErrorKind::usage if a variable is missing or not a number.
std::optional<RankPlace> rank_place();

/// The position of this machine among those of a run, if a process on each of them starts the ranks there.
struct NodePlace {
  int node = 0, nodes = 1;
  Endpoint meeting;
};
/// Reads it from the variables of Kubernetes' PyTorchJob: those of torchrun without LOCAL_RANK, and with a RANK for
/// each pod.
std::optional<NodePlace> node_place();

/// Variables, "NAME=value", that keep a process from taking the place of its parent.
std::vector<std::string> variables_without_place();

/// The variables that tell a process its place, "NAME=value".
std::vector<std::string> place_variables(const RankPlace& place);

}  // namespace qtrain
