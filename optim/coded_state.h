#pragma once
#include <string>
#include <vector>

#include "core/context.h"
#include "kernels/code_table.h"
#include "kernels/dynamic_map.h"
#include "optim/state.h"

namespace qtrain {

/// Whether the state of a parameter stays in f32: small parameters and embeddings, as in bitsandbytes and transformers.
inline bool keeps_f32(const ParamSpec& param) {
  constexpr std::int64_t kSmall = 4096;
  return param.shape.numel() < kSmall || param.role == Role::embedding;
}

/// Adds two tensors to the state: `<name>` u8 and `<name>_absmax` f32.
void add_coded(std::vector<StateSpec>& state, const std::string& name, const ParamSpec& param);

/// Code tables on the device, in the order of the given maps.
class CodeTables {
 public:
  explicit CodeTables(std::vector<Signedness> maps) : maps_(std::move(maps)) {}
  std::size_t bytes() const { return maps_.size() * sizeof(ops::CodeTable); }
  void write(Ctx& ctx, Tensor work);
  /// Coded state number `i`: codes and scales are state[2 i] and state[2 i + 1], and the table is that of map `i`.
  ops::CodedState coded(std::span<const Tensor> state, std::size_t i) const;

 private:
  std::vector<Signedness> maps_;
  ConstTensor tables_;
};

}  // namespace qtrain
