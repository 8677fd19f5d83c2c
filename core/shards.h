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
  int ranks = 1, rank = 0;  ///< of the group that this one is in
  int replicas = 1;         ///< groups, each of which has all of the state
  /// Whether groups that update a parameter alike get the same bits; else those that are not cut are the first one's.
  bool replicas_agree = true;
  /// How to cut trained parameters; empty: anywhere. Parameters that files store in another order are never cut.
  std::function<Cut(const ParamSpec&)> cut = {};
  int buffers = 2;             ///< blocks that are whole at a time: while one is computed others are on their way
  bool separate_sums = false;  ///< with ZeroStage::optimizer: a rank's sums are not in the memory of its gradients
  bool on_host = false;        ///< with ZeroStage::weights: a rank's values wait in pinned memory of the host

  bool divides_trained() const { return stage != ZeroStage::none; }
  bool divides_gradients() const { return stage >= ZeroStage::gradients; }
  bool divides_weights() const { return stage == ZeroStage::weights; }
};

/// Where a parameter can be cut: at multiples of so many elements.
inline constexpr std::int64_t kShardAlign = 1024;

/// Parameters of one unit and type, one behind the other in rows of elements, one for each rank.
struct ShardGroup {
  int unit = 0;
  Cut cut = Cut::anywhere;
  DType dtype = DType::f32;
  std::optional<DType> grad_dtype = {};  ///< none: frozen
  std::vector<Param*> params = {};
  std::vector<std::int64_t> begins = {};  ///< where each begins among the elements of the group
  /// Where each row begins, and the end of the last. Rows are of one length, unless parameters are not cut.
  std::vector<std::int64_t> rows = {};
  /// Flat. All values and gradients, in memory that other units have too where these are divided, and the row of this
  /// rank. `values` holds only the own row until they are gathered. `own_values` may be of the host: Sharding::on_host.
  Tensor values, grads, own_values, own_grads;

  int ranks() const { return static_cast<int>(rows.size()) - 1; }
  bool trained() const { return grad_dtype.has_value(); }
  std::int64_t elements() const { return rows.back(); }
  std::int64_t row_begin(int rank) const { return rows[static_cast<std::size_t>(rank)]; }
  std::int64_t row_size(int rank) const { return row_begin(rank + 1) - row_begin(rank); }
  std::int64_t longest_row() const;
  /// Whether all rows have one length.
  bool is_even() const { return cut == Cut::anywhere; }
};

/// In which memory a unit is made whole: 0 for what is in no block, and blocks take turns in the others.
constexpr int buffer_of(int unit, int buffers) {
  return unit == 0 ? 0 : 1 + unit % buffers;
}

/// Divides the parameters of a group evenly: sets `begins` and `rows`.
void divide_evenly(ShardGroup& group, int ranks);

}  // namespace qtrain
