#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "emulator/fiber.h"

/// Asynchronous products of warpgroups. Each warp keeps the products that it has started. They are computed when it
/// waits for them, at once, or in between (Settings::copies), which makes a difference only in incorrect kernels.
namespace qtrain::emulation {

class Block;

/// The part of a product that one warp computes: 16 rows.
struct PendingProduct {
  std::array<WarpgroupMma, 32> lanes;
  unsigned group;
  bool done = false;
  /// The accumulators before the product, lane by lane. Empty if an earlier pending product computes them.
  std::vector<std::uint32_t> held = {};
};

class Warpgroups {
 public:
  void reset(std::size_t warps);

  // Called when all lanes of a warp have met.
  void fence(unsigned warp) { warps_[warp].fenced = true; }
  void start(Block& block, unsigned warp, PendingProduct product, Place place);
  void commit(unsigned warp) { ++warps_[warp].group; }
  void wait(Block& block, unsigned warp, int pending);

  /// The products of a warp that a wait with this many pending groups completes.
  std::vector<const PendingProduct*> completed_by(unsigned warp, int pending) const;
  bool fenced(unsigned warp) const { return warps_[warp].fenced; }
  bool idle(unsigned warp) const { return warps_[warp].products.empty(); }
  /// A warp that has started fewer products than its warpgroup; -1 if there is none.
  int straggler() const;

 private:
  struct Warp {
    std::deque<PendingProduct> products;
    unsigned group = 0;
    std::size_t started = 0;
    bool fenced = false;
  };
  /// What the warps of a warpgroup must agree about.
  struct Start {
    Place place;
    std::uint64_t a_matrix, b_matrix;
  };
  void compute_all(Block& block, unsigned warp);
  void hold(PendingProduct& product);

  std::vector<Warp> warps_;
  std::vector<std::vector<Start>> starts_;  ///< per warpgroup
};

}  // namespace qtrain::emulation
