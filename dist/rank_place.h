#pragma once
#include <optional>
#include <string>
#include <vector>

#include "dist/socket.h"

namespace qtrain {

/// The position of this process among those of a run.
struct RankPlace {
  int rank = 0, size = 1;              ///< over all machines
  int local_rank = 0, local_size = 1;  ///< on this one
  Endpoint store;                      ///< where the ranks meet
  int attempt = 0;                     ///< how often our launcher started the run before
  bool serves_store = false;           ///< whether this rank is the server: nobody else is
  std::string launcher;                ///< who started it: "qtrain", "torchrun", "Slurm", "Open MPI"
};

/// What the environment says of it: the variables of our own launcher, of torchrun (and of Kubernetes' PyTorchJob,
/// which has the same), Slurm's srun, Open MPI's mpirun. Nothing for a process that was started by itself. Errors:
/// ErrorKind::usage where a variable is missing or no number.
std::optional<RankPlace> rank_place();

/// Which of the machines of a run this one is, where a process on each of them starts the ranks there.
struct NodePlace {
  int node = 0, nodes = 1;
  Endpoint meeting;
};
/// What Kubernetes' PyTorchJob says of it: the variables of torchrun, but no LOCAL_RANK, and a RANK for each pod.
std::optional<NodePlace> node_place();

/// Variables, "NAME=value", that keep a process from taking the place of the one that starts it.
std::vector<std::string> variables_without_place();

/// The variables that tell a process its place, "NAME=value".
std::vector<std::string> place_variables(const RankPlace& place);

}  // namespace qtrain
