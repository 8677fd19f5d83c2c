#include "plan/interconnect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>

#include "plan/gpus.h"

namespace qtrain {
namespace {

constexpr double kLarge = 1e12;  // bytes: so many that latencies do not matter

/// 1 us and 100 GB/s within a node, 10 us and 10 GB/s between nodes.
Interconnect net(int nodes, int ranks_per_node) {
  return {.inside = {1e-6, 100e9}, .between = {10e-6, 10e9}, .ranks_per_node = ranks_per_node, .nodes = nodes};
}

TEST(Interconnect, LargeMessagesAreBoundByBandwidth) {
  EXPECT_NEAR(ring_pass(net(1, 8), kLarge), 7.0 / 8 * kLarge / 100e9, 1e-4);
  EXPECT_NEAR(ring_all_reduce(net(1, 8), kLarge), 2 * 7.0 / 8 * kLarge / 100e9, 1e-4);
  EXPECT_NEAR(all_to_all(net(1, 8), kLarge), 7.0 / 8 * kLarge / 100e9, 1e-4);
  EXPECT_NEAR(tree_all_reduce(net(4, 8), kLarge), 2 * kLarge / 80e9, 1e-3);
}

TEST(Interconnect, PartsOfItHaveTheirOwnLinks) {
  const Interconnect all = net(4, 8);
  for (const auto& [size, inside_ranks, inside_nodes, over_ranks, over_nodes] :
       {std::array{8, 8, 1, 1, 4}, {2, 2, 1, 4, 4}, {16, 8, 2, 1, 2}}) {
    const Interconnect group = within_group(all, size), replicas = over_groups(all, size);
    EXPECT_EQ(group.ranks_per_node, inside_ranks) << size;
    EXPECT_EQ(group.nodes, inside_nodes) << size;
    EXPECT_EQ(replicas.ranks_per_node, over_ranks) << size;
    EXPECT_EQ(replicas.nodes, over_nodes) << size;
    EXPECT_EQ(group.ranks() * replicas.ranks(), all.ranks());
  }
}

TEST(Interconnect, SmallMessagesAreBoundByLatency) {
  EXPECT_NEAR(ring_pass(net(1, 8), 0), 7e-6, 1e-12);
  EXPECT_NEAR(ring_pass(net(4, 8), 0), 28e-6 + 3 * 10e-6, 1e-12);
  EXPECT_NEAR(tree_pass(net(4, 8), 0), 7e-6 + 2 * 10e-6, 1e-12);
  EXPECT_NEAR(tree_pass(net(5, 1), 0), 3 * 10e-6, 1e-12);
  EXPECT_NEAR(tree_all_reduce(net(4, 8), 0), 2 * (7e-6 + 2 * 10e-6), 1e-12);
  EXPECT_NEAR(all_to_all(net(4, 8), 0), 24 * 10e-6, 1e-12);
}

// Rings use the links of all ranks of a node, limited by what passes through one rank; a single rank only sends its own
// bytes.
TEST(Interconnect, ManyLinksBetweenNodesAreOneRing) {
  EXPECT_NEAR(ring_pass(net(2, 4), kLarge), 7.0 / 8 * kLarge / 40e9, 1e-3);
  EXPECT_NEAR(ring_pass(net(2, 16), kLarge), 31.0 / 32 * kLarge / 100e9, 1e-3);
  EXPECT_NEAR(ring_pass(net(8, 1), kLarge), 7.0 / 8 * kLarge / 10e9, 1e-3);
  EXPECT_NEAR(all_to_all(net(2, 4), kLarge), 4.0 / 8 * kLarge / 10e9, 1e-3);
  EXPECT_NEAR(tree_pass(net(2, 4), kLarge), kLarge / 4 / 2 / 10e9 + kLarge * 3 / 4 / 100e9, 1e-3);
}

// Trees take fewer steps, rings send slightly less.
TEST(Interconnect, TheFasterAllReduceDependsOnTheSize) {
  const Interconnect n = net(16, 8);
  const double border = 128 * 80e9 * (105 * 1e-6 + 11 * 10e-6);  // size at which steps and bytes take equally long
  for (const double bytes : {1.0, border * 0.99})
    EXPECT_LT(tree_all_reduce(n, bytes), ring_all_reduce(n, bytes)) << bytes;
  for (const double bytes : {border * 1.01, border * 100})
    EXPECT_GT(tree_all_reduce(n, bytes), ring_all_reduce(n, bytes)) << bytes;
  for (const double bytes : {1.0, border * 100})
    EXPECT_EQ(exchange_seconds(n, Collectives::usual, Exchange::all_reduce, bytes),
              std::min(tree_all_reduce(n, bytes), ring_all_reduce(n, bytes)));
  EXPECT_EQ(exchange_seconds(n, Collectives::tree, Exchange::all_reduce, kLarge), tree_all_reduce(n, kLarge));
  EXPECT_EQ(exchange_seconds(n, Collectives::ring, Exchange::all_reduce, 1), ring_all_reduce(n, 1));
}

TEST(Interconnect, DividedGradientsAreSentToTheirRanks) {
  const Interconnect n = net(16, 8);
  EXPECT_EQ(exchange_seconds(n, Collectives::usual, Exchange::reduce, 1e9), all_to_all(n, 1e9));
  EXPECT_EQ(exchange_seconds(n, Collectives::usual, Exchange::reduce_scatter, 1e9), ring_pass(n, 1e9));
  EXPECT_EQ(exchange_seconds(n, Collectives::ring, Exchange::reduce, 1e9), ring_pass(n, 1e9));
  EXPECT_EQ(exchange_seconds(n, Collectives::tree, Exchange::reduce, 1e9), tree_pass(n, 1e9));
  EXPECT_EQ(exchange_seconds(n, Collectives::usual, Exchange::all_gather, 1e9), ring_pass(n, 1e9));
}

// From one rank to all others, or from each matrix's rank if whole matrices are updated.
TEST(Interconnect, BroadcastsSendAllBytesOnce) {
  const Interconnect n = net(4, 8);
  EXPECT_NEAR(ring_broadcast(n, kLarge), kLarge / 80e9, 1e-3);
  EXPECT_NEAR(ring_broadcast(n, 0), 28e-6 + 3 * 10e-6, 1e-12);
  EXPECT_NEAR(tree_broadcast(n, 0), 7e-6 + 2 * 10e-6, 1e-12);
  EXPECT_EQ(exchange_seconds(n, Collectives::usual, Exchange::broadcast, 1e9), ring_broadcast(n, 1e9));
  EXPECT_EQ(exchange_seconds(n, Collectives::ring, Exchange::broadcast, 1e9), ring_broadcast(n, 1e9));
  EXPECT_EQ(exchange_seconds(n, Collectives::tree, Exchange::broadcast, 1e9), tree_broadcast(n, 1e9));
}

using CostModel = double (*)(const Interconnect&, double);
constexpr CostModel kModels[] = {ring_pass,       tree_pass,       ring_broadcast, tree_broadcast,
                                 ring_all_reduce, tree_all_reduce, all_to_all};

TEST(Interconnect, MoreBytesOrNodesOrSlowerLinksAreNotFaster) {
  for (const CostModel model : kModels) {
    double last = 0;
    for (const double bytes : {0.0, 1e3, 1e6, 1e9, 1e12}) {
      EXPECT_GE(model(net(4, 8), bytes), last);
      last = model(net(4, 8), bytes);
    }
    last = 0;
    for (const int nodes : {1, 2, 3, 4, 16, 128}) {
      EXPECT_GE(model(net(nodes, 8), 1e9), last) << nodes;
      last = model(net(nodes, 8), 1e9);
    }
    Interconnect slow = net(4, 8);
    slow.between.bandwidth /= 10;
    EXPECT_GT(model(slow, 1e9), model(net(4, 8), 1e9));
  }
}

TEST(Interconnect, ARankAloneSendsNothing) {
  for (const CostModel model : kModels) EXPECT_EQ(model(net(1, 1), kLarge), 0);
}

TEST(Interconnect, OneRankANodeHasNoLinksInside) {
  Interconnect n = net(4, 1);
  n.inside = {1e6, 1};
  for (const CostModel model : kModels) EXPECT_LT(model(n, 1e9), 1);
}

TEST(Interconnect, FollowsTheCard) {
  const auto of = [](const char* card, std::optional<double> gbps = {}) {
    return interconnect_of(*find_gpu(card), {.nodes = 2, .ranks_per_node = 8}, gbps);
  };
  EXPECT_NEAR(of("H100").inside.bandwidth, 360e9, 1);
  EXPECT_NEAR(of("B200").inside.bandwidth, 720e9, 1);
  EXPECT_LT(of("RTX 4090").inside.bandwidth, 32e9);
  EXPECT_NEAR(of("H200").between.bandwidth, 48e9, 1);
  // Names from the driver: PCIe cards have no NVLink between all GPUs.
  for (const char* card : {"NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe", "A100 PCIe"})
    EXPECT_NEAR(of(card).inside.bandwidth, 23.6e9, 1e8) << card;
  EXPECT_NEAR(of("NVIDIA H200 NVL").inside.bandwidth, 47.3e9, 1e8);
  for (const char* card : {"NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"})
    EXPECT_NEAR(of(card).inside.bandwidth, 240e9, 1) << card;
  EXPECT_NEAR(of("A100").between.bandwidth, 24e9, 1);
  EXPECT_NEAR(of("L40S").between.bandwidth, 1.5e9, 1) << "all GPUs share one network card of 100 Gb/s";
  EXPECT_NEAR(of("L40S", 200).between.bandwidth, 24e9, 1);
}

}  // namespace
}  // namespace qtrain
