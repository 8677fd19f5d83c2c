#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/param_store.h"

namespace qtrain {

class UpdateRule;

/// A tensor of the state that belongs to a parameter.
struct StateSpec {
  std::string name;  ///< in files it is followed by a dot and the parameter's name
  Shape shape;
  DType dtype = DType::f32;
  std::int64_t unit = 1;  ///< elements of the parameter to which an entry belongs, where it can be cut
};

/// Whether a parameter and its state can be cut into parts.
enum class Cut : std::uint8_t { anywhere, never };

/// Elements of a parameter, or of several that are contiguous, with their state.
struct StateChunk {
  std::size_t param;  ///< its number, or that of the first
  std::int64_t begin, count;
  std::vector<Tensor> state;  ///< flat, but for whole parameters
};

/// The state of an optimizer, declared by its rule: zeros at first.
class OptimizerState {
 public:
  struct Place {
    Device device;
    Placement placement;
  };
  OptimizerState(const UpdateRule& rule, std::span<Param* const> params, const Place& place);

  ParamStore& store() { return store_; }
  /// All of it in order, with storage once the store is allocated.
  std::vector<StateChunk> chunks(Cut cut) const;

 private:
  struct Group {
    std::int64_t elements;  ///< of the parameter
    std::vector<Param*> tensors;
    std::vector<std::int64_t> units;
  };
  static StateChunk chunk_of(const Group& group, std::int64_t begin, std::int64_t count);

  ParamStore store_;
  std::vector<Group> groups_;
};

}  // namespace qtrain
