#pragma once
#include <cstdint>
#include <optional>
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

/// Elements of a parameter, or of several that are contiguous, with their state.
struct StateChunk {
  std::size_t param;  ///< its number, or that of the first
  std::int64_t begin, count;
  std::vector<Tensor> state;  ///< flat, but for whole parameters
  /// What is updated, where it waits on the host: as the state flat, but for whole parameters.
  std::optional<Tensor> value = {};
};

/// The state of an optimizer, declared by its rule: zeros at first. Of a parameter that is divided among ranks it is
/// that of the part that this rank updates; in the store it has the name of the whole, and `kept` says which part.
class OptimizerState {
 public:
  struct Place {
    Device device;
    Placement placement;
  };
  OptimizerState(const UpdateRule& rule, std::span<Param* const> params, const Place& place);

  ParamStore& store() { return store_; }
  /// All of it in order, with storage once the store is allocated: a chunk for each parameter, or of what the rule can
  /// cut several of a few million elements.
  std::vector<StateChunk> whole() const;
  std::vector<StateChunk> chunks(std::span<Param* const> params, const UpdateRule& rule) const;
  /// Whether any of them waits on the host, apart from its gradient.
  static bool has_values_on_host(std::span<Param* const> params);

 private:
  struct Group {
    std::size_t param;             ///< its number
    std::int64_t begin, elements;  ///< the part of it that is updated here
    std::vector<Param*> tensors;
    std::vector<std::int64_t> units;
  };
  void declare(Group& group, const Param& param, const StateSpec& s);
  static StateChunk chunk_of(const Group& group, std::int64_t begin, std::int64_t count);

  ParamStore store_;
  std::vector<Group> groups_;
};

}  // namespace qtrain
