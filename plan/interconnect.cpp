#include "plan/interconnect.h"

#include <algorithm>
#include <bit>

namespace qtrain {
namespace {

/// Levels of a binary tree over n nodes.
int levels(int n) {
  return std::bit_width(static_cast<unsigned>(n) - 1);
}

/// The fraction of the bytes that belongs to other ranks.
double others(int n) {
  return static_cast<double>(n - 1) / n;
}

// Rings cross between nodes over the links of all ranks of a node.
double ring_bandwidth(const Interconnect& net) {
  if (net.nodes == 1) return net.inside.bandwidth;
  const double across = net.ranks_per_node * net.between.bandwidth;
  return net.ranks_per_node == 1 ? across : std::min(net.inside.bandwidth, across);
}

}  // namespace

Interconnect within_group(const Interconnect& net, int size) {
  Interconnect group = net;
  group.ranks_per_node = std::min(size, net.ranks_per_node);
  group.nodes = (size + net.ranks_per_node - 1) / net.ranks_per_node;
  return group;
}

// Each rank of a node exchanges with its own counterparts.
Interconnect over_groups(const Interconnect& net, int size) {
  Interconnect replicas = net;
  replicas.ranks_per_node = std::max(1, net.ranks_per_node / size);
  replicas.nodes = net.ranks() / size / replicas.ranks_per_node;
  return replicas;
}

double ring_pass(const Interconnect& net, double bytes) {
  if (net.ranks() == 1) return 0;
  const int across = net.nodes - 1, within = net.ranks() - net.nodes;
  return within * net.inside.latency + across * net.between.latency + bytes * others(net.ranks()) / ring_bandwidth(net);
}

double tree_pass(const Interconnect& net, double bytes) {
  double seconds = 0;
  if (net.nodes > 1)
    seconds += levels(net.nodes) * net.between.latency +
               bytes / net.ranks_per_node * others(net.nodes) / net.between.bandwidth;
  if (net.ranks_per_node > 1)
    seconds +=
        (net.ranks_per_node - 1) * net.inside.latency + bytes * others(net.ranks_per_node) / net.inside.bandwidth;
  return seconds;
}

double ring_broadcast(const Interconnect& net, double bytes) {
  if (net.ranks() == 1) return 0;
  const int across = net.nodes - 1, within = net.ranks() - net.nodes;
  return within * net.inside.latency + across * net.between.latency + bytes / ring_bandwidth(net);
}

double tree_broadcast(const Interconnect& net, double bytes) {
  if (net.ranks() == 1) return 0;
  const double steps = (net.ranks_per_node - 1) * net.inside.latency + levels(net.nodes) * net.between.latency;
  return steps + bytes / ring_bandwidth(net);
}

double ring_all_reduce(const Interconnect& net, double bytes) {
  return 2 * ring_pass(net, bytes);
}

double tree_all_reduce(const Interconnect& net, double bytes) {
  return 2 * tree_broadcast(net, bytes);
}

double all_to_all(const Interconnect& net, double bytes) {
  const int within = net.ranks_per_node - 1, across = net.ranks() - net.ranks_per_node;
  const double part = bytes / net.ranks();
  const double inside = within == 0 ? 0 : within * (net.inside.latency + part / net.inside.bandwidth);
  const double between = across == 0 ? 0 : across * (net.between.latency + part / net.between.bandwidth);
  return std::max(inside, between);
}

namespace {

double by_rings(const Interconnect& net, Exchange what, double bytes) {
  switch (what) {
    case Exchange::all_reduce: return ring_all_reduce(net, bytes);
    case Exchange::broadcast: return ring_broadcast(net, bytes);
    default: return ring_pass(net, bytes);
  }
}

double by_trees(const Interconnect& net, Exchange what, double bytes) {
  switch (what) {
    case Exchange::all_reduce: return tree_all_reduce(net, bytes);
    case Exchange::broadcast: return tree_broadcast(net, bytes);
    default: return tree_pass(net, bytes);
  }
}

}  // namespace

double exchange_seconds(const Interconnect& net, Collectives how, Exchange what, double bytes) {
  switch (how) {
    case Collectives::ring: return by_rings(net, what, bytes);
    case Collectives::tree: return by_trees(net, what, bytes);
    default: break;
  }
  switch (what) {
    case Exchange::reduce: return all_to_all(net, bytes);
    case Exchange::all_reduce: return std::min(ring_all_reduce(net, bytes), tree_all_reduce(net, bytes));
    default: return by_rings(net, what, bytes);
  }
}

}  // namespace qtrain
