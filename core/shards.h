#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/tensor.h"

namespace qtrain {

struct Param;
struct ParamSpec;

/// Which parts of the training state are sharded over the ranks, as the stages 0 to 3 of ZeRO; each includes the
/// previous ones. Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models
/// (2020).
enum class ZeroStage : std::uint8_t { none, optimizer, gradients, weights };

/// Whether a parameter and its state can be cut into parts.
enum class Cut : std::uint8_t { anywhere, never };

/// How a store is sharded.
struct Sharding {
  ZeroStage stage = ZeroStage::none;
  int ranks = 1, rank = 0;  ///< ranks of this rank's group, and its index among them
  int replicas = 1;         ///< number of groups, each of which has all of the state
  /// Whether replicas that compute the same update get the same bits; if not, the first one broadcasts uncut
  /// parameters.
  bool replicas_agree = true;
  /// How to cut trained parameters; empty: anywhere. Parameters that files store in another order are never cut.
  std::function<Cut(const ParamSpec&)> cut = {};
  int buffers = 2;             ///< blocks gathered at a time: while one is computed, the next are gathered
  bool separate_sums = false;  ///< with ZeroStage::optimizer: reduced gradients have their own memory
  bool on_host = false;        ///< with ZeroStage::weights: a rank's values are in pinned host memory

  bool divides_trained() const { return stage != ZeroStage::none; }
  bool divides_gradients() const { return stage >= ZeroStage::gradients; }
  bool divides_weights() const { return stage == ZeroStage::weights; }
};

/// Parameters can be cut at multiples of this many elements.
inline constexpr std::int64_t kShardAlign = 1024;

/// Parameters of one unit and type, concatenated and divided into rows of elements, one for each rank.
struct ShardGroup {
  int unit = 0;
  Cut cut = Cut::anywhere;
  DType dtype = DType::f32;
  std::optional<DType> grad_dtype = {};  ///< none: frozen
  std::vector<Param*> params = {};
  std::vector<std::int64_t> begins = {};  ///< offset of each parameter in the group's elements
  /// Offset of each row, and the end of the last. Rows have the same length, unless parameters must not be cut.
  std::vector<std::int64_t> rows = {};
  /// Flat tensors of all values and gradients (in memory shared with other units if these are sharded), and of this
  /// rank's row. Until they are gathered, `values` holds only this rank's row. `own_values` may be in host memory:
  /// Sharding::on_host.
  Tensor values, grads, own_values, own_grads;

  int ranks() const { return static_cast<int>(rows.size()) - 1; }
  bool trained() const { return grad_dtype.has_value(); }
  std::int64_t elements() const { return rows.back(); }
  std::int64_t row_begin(int rank) const { return rows[static_cast<std::size_t>(rank)]; }
  std::int64_t row_size(int rank) const { return row_begin(rank + 1) - row_begin(rank); }
  std::int64_t longest_row() const;
  /// Whether all rows have the same length.
  bool is_even() const { return cut == Cut::anywhere; }
};

/// The buffer in which a unit is gathered: 0 for parameters outside blocks; blocks take turns in the others.
constexpr int buffer_of(int unit, int buffers) {
  return unit == 0 ? 0 : 1 + unit % buffers;
}

/// Divides the parameters of a group evenly: sets `begins` and `rows`.
void divide_evenly(ShardGroup& group, int ranks);

}  // namespace qtrain
