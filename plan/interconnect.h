#pragma once
#include <cstdint>

namespace qtrain {

/// A connection between ranks: latency in seconds, bandwidth in bytes/s per direction.
struct Link {
  double latency = 0, bandwidth = 0;
};

/// Links of a run's ranks: `inside` connects a rank to the others on its node, `between` to other nodes. Each rank has
/// its own link of either kind.
struct Interconnect {
  Link inside, between;
  int ranks_per_node = 1, nodes = 1;

  int ranks() const { return ranks_per_node * nodes; }
};

/// The interconnect within a group of `size` consecutive ranks, and between the ranks at the same place of such groups.
Interconnect within_group(const Interconnect& net, int size);
Interconnect over_groups(const Interconnect& net, int size);

/// Seconds of collectives by the latency-bandwidth model (Hockney 1994; Thakur et al. 2005): a message takes the
/// latency of its link plus its bytes divided by the bandwidth. `bytes` is the whole buffer: what each rank has after
/// an all-gather, or starts with in the other collectives. A single rank takes 0.

/// All-gather or reduce-scatter in a ring through all ranks, node by node. There are as many rings as links between two
/// nodes, and each carries its share of the bytes.
double ring_pass(const Interconnect& net, double bytes);
/// The same by doubling between nodes (Bruck; recursive halving), then by rings within each node.
double tree_pass(const Interconnect& net, double bytes);
/// Pipelined broadcast along a ring, or down a tree over nodes.
double ring_broadcast(const Interconnect& net, double bytes);
double tree_broadcast(const Interconnect& net, double bytes);
/// All-reduce as two passes around a ring.
double ring_all_reduce(const Interconnect& net, double bytes);
/// All-reduce to the root of a tree over nodes and back, as tree_broadcast, with a chain within a node. Source: the
/// double trees of Sanders, Speck and Traeff (2009), as in NCCL.
double tree_all_reduce(const Interconnect& net, double bytes);
/// Every rank sends a part of its bytes to each other rank in turn; both kinds of links work at the same time.
double all_to_all(const Interconnect& net, double bytes);

/// Collective algorithms that a run is assumed to use.
enum class Collectives : std::uint8_t {
  usual,  ///< sharded gradients by all_to_all, for sums in rank order; gathers and broadcasts by rings; all_reduce by
          ///< the faster one, as NCCL does
  ring,   ///< rings for everything, reduce-scatter for gradients
  tree,   ///< trees for everything
};

/// Kinds of collectives.
enum class Exchange : std::uint8_t {
  all_gather,
  broadcast,
  reduce,          ///< each rank receives all contributions to its part and adds them in rank order
  reduce_scatter,  ///< the same result, summed on the way
  all_reduce,
};
/// Seconds of a collective with these algorithms.
double exchange_seconds(const Interconnect& net, Collectives how, Exchange what, double bytes);

}  // namespace qtrain
