#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/param_store.h"

namespace qtrain {

class UpdateRule;

/// A tensor of a parameter's state.
struct StateSpec {
  std::string name;  ///< in files it is followed by a dot and the parameter's name
  Shape shape;
  DType dtype = DType::f32;
  std::int64_t unit = 1;  ///< elements of the parameter per entry, for parameters that can be cut
};

/// Elements of a parameter, or of several contiguous ones, with their state.
struct StateChunk {
  std::size_t param;  ///< index of the (first) parameter
  std::int64_t begin, count;
  std::vector<Tensor> state;  ///< flat, except for whole parameters
  /// The values to update if they are kept on the host; flat, except for whole parameters.
  std::optional<Tensor> value = {};
};

/// The state of an optimizer, declared by its rule and initially zero. For parameters that are sharded among ranks it
/// covers the part that this rank updates; the store uses the whole parameter's name, and `kept` says which part.
class OptimizerState {
 public:
  struct Place {
    Device device;
    Placement placement;
  };
  OptimizerState(const UpdateRule& rule, std::span<Param* const> params, const Place& place);

  ParamStore& store() { return store_; }
  /// The whole state in order, with storage once the store is allocated: `whole` returns one chunk per parameter,
  /// `chunks` several chunks of a few million elements if the rule can cut the parameter.
  std::vector<StateChunk> whole() const;
  std::vector<StateChunk> chunks(std::span<Param* const> params, const UpdateRule& rule) const;
  /// Whether any parameter is kept on the host while its gradient is on the device.
  static bool has_values_on_host(std::span<Param* const> params);

 private:
  struct Group {
    std::size_t param;             ///< its index
    std::int64_t begin, elements;  ///< the part that is updated here
    std::vector<Param*> tensors;
    std::vector<std::int64_t> units;
  };
  void declare(Group& group, const Param& param, const StateSpec& s);
  static StateChunk chunk_of(const Group& group, std::int64_t begin, std::int64_t count);

  ParamStore store_;
  std::vector<Group> groups_;
};

}  // namespace qtrain
