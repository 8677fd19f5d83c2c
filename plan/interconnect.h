#pragma once
#include <cstdint>

namespace qtrain {

/// A connection between ranks: how long a message without bytes takes, in seconds, and bytes a second in one direction.
struct Link {
  double latency = 0, bandwidth = 0;
};

/// How the ranks of a run are connected: `inside` joins a rank to the others of its node, `between` to other nodes.
/// Each rank has its own link of either kind.
struct Interconnect {
  Link inside, between;
  int ranks_per_node = 1, nodes = 1;

  int ranks() const { return ranks_per_node * nodes; }
};

/// What consecutive ranks of this size see of it, and those that have the same place in such groups, one of each.
Interconnect within_group(const Interconnect& net, int size);
Interconnect over_groups(const Interconnect& net, int size);

/// Seconds of collective operations by the model of latency and bandwidth (Hockney 1994; Thakur et al. 2005): a message
/// takes the latency of its link and its bytes over the bandwidth. `bytes` are those of all ranks together: what
/// everybody has after an all-gather, what each begins with in the others. A single rank takes 0.

/// All-gather or reduce-scatter in a ring through all ranks, node by node. There are as many rings as links between two
/// nodes, each for its share of the bytes.
double ring_pass(const Interconnect& net, double bytes);
/// The same among nodes by doubling (Bruck; recursive halving), then by rings inside each.
double tree_pass(const Interconnect& net, double bytes);
/// From one rank to all others, along the ring in pieces that follow each other; or down a tree over nodes.
double ring_broadcast(const Interconnect& net, double bytes);
double tree_broadcast(const Interconnect& net, double bytes);
/// Two passes of a ring.
double ring_all_reduce(const Interconnect& net, double bytes);
/// To the root of a tree over nodes and back, as tree_broadcast; a chain inside a node. Source: the
/// double trees of Sanders, Speck and Traeff (2009), as in NCCL.
double tree_all_reduce(const Interconnect& net, double bytes);
/// Every rank sends a part of its bytes to each other, one after the other; both kinds of links work at the same time.
double all_to_all(const Interconnect& net, double bytes);

/// Which algorithms a run is taken to use.
enum class Collectives : std::uint8_t {
  usual,  ///< gradients of divided runs by all_to_all, for sums in the order of the ranks; gathers and broadcasts by
          ///< rings, and all_reduce by what is faster, as NCCL
  ring,   ///< rings for all, reduce-scatter for gradients
  tree,   ///< trees for all
};

/// What a collective operation does.
enum class Exchange : std::uint8_t {
  all_gather,
  broadcast,
  reduce,          ///< to each rank its part of the sums, which it adds in the order of the ranks
  reduce_scatter,  ///< the same, added on the way
  all_reduce,
};
/// By those algorithms.
double exchange_seconds(const Interconnect& net, Collectives how, Exchange what, double bytes);

}  // namespace qtrain
