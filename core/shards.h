#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/tensor.h"

namespace qtrain {

struct Param;

/// What of a training state the ranks of a run divide among them, as the stages 0 to 3 of ZeRO; each holds the ones
/// before it. Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models (2020).
enum class ZeroStage : std::uint8_t { none, optimizer, gradients, weights };

/// Whether a parameter and its state can be cut into parts.
enum class Cut : std::uint8_t { anywhere, never };

/// How a store is divided.
struct Sharding {
  ZeroStage stage = ZeroStage::none;
  int ranks = 1, rank = 0;
  Cut cut = Cut::anywhere;     ///< of trained parameters; what files hold in another order is never cut
  int buffers = 2;             ///< blocks that are whole at a time: while one is computed others are on their way
  bool separate_sums = false;  ///< with ZeroStage::optimizer: a rank's sums are not in the memory of its gradients

  bool divides_trained() const { return stage != ZeroStage::none; }
  bool divides_gradients() const { return stage >= ZeroStage::gradients; }
  bool divides_weights() const { return stage == ZeroStage::weights; }
};

/// Where a parameter can be cut: at multiples of so many elements.
inline constexpr std::int64_t kShardAlign = 1024;

/// Parameters of one unit and type, one behind the other in [ranks, row] elements; row r is that of rank r.
struct ShardGroup {
  int unit = 0;
  Cut cut = Cut::anywhere;
  DType dtype = DType::f32;
  std::optional<DType> grad_dtype = {};  ///< none: frozen
  std::vector<Param*> params = {};
  std::vector<std::int64_t> begins = {};  ///< where each begins among the elements of the group
  std::int64_t row = 0;
  /// Flat. All values and gradients, in memory that other units have too where these are divided, and the row of this
  /// rank. `values` holds only the own row until they are gathered.
  Tensor values, grads, own_values, own_grads;

  bool trained() const { return grad_dtype.has_value(); }
};

/// In which memory a unit is made whole: 0 for what is in no block, and blocks take turns in the others.
constexpr int buffer_of(int unit, int buffers) {
  return unit == 0 ? 0 : 1 + unit % buffers;
}

/// Divides the parameters of a group evenly: sets `begins` and `row`.
void divide_evenly(ShardGroup& group, int ranks);

}  // namespace qtrain
