#pragma once
#include <string>
#include <vector>

#include "core/context.h"
#include "kernels/code_table.h"
#include "kernels/dynamic_map.h"
#include "optim/state.h"

namespace qtrain {

/// As bitsandbytes and transformers have it: small parameters and embeddings keep their state in f32.
inline bool keeps_f32(const ParamSpec& param) {
  constexpr std::int64_t kSmall = 4096;
  return param.shape.numel() < kSmall || param.role == Role::embedding;
}

/// `<name>` u8 and `<name>_absmax` f32, concatenated.
void add_coded(std::vector<StateSpec>& state, const std::string& name, const ParamSpec& param);

/// Maps of codes on the device, in the order in which they are asked for.
class CodeTables {
 public:
  explicit CodeTables(std::vector<Signedness> maps) : maps_(std::move(maps)) {}
  std::size_t bytes() const { return maps_.size() * sizeof(ops::CodeTable); }
  void write(Ctx& ctx, Tensor work);
  /// State number `i` of those with a map: codes and scales are state[2 i] and state[2 i + 1].
  ops::CodedState coded(std::span<const Tensor> state, std::size_t i) const;

 private:
  std::vector<Signedness> maps_;
  ConstTensor tables_;
};

}  // namespace qtrain
