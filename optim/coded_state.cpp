#include "optim/coded_state.h"

#include <cstring>

#include "core/transfer.h"

namespace qtrain {

void add_coded(std::vector<StateSpec>& state, const std::string& name, const ParamSpec& param) {
  const std::int64_t blocks = (param.shape.numel() + ops::kCodeBlock - 1) / ops::kCodeBlock;
  state.push_back({.name = name, .shape = param.shape, .dtype = DType::u8});
  state.push_back({.name = name + "_absmax", .shape = {blocks}, .dtype = DType::f32, .unit = ops::kCodeBlock});
}

void CodeTables::write(Ctx& ctx, Tensor work) {
  tables_ = work;
  std::vector<std::byte> bytes;
  for (const Signedness sign : maps_) {
    const ops::CodeTable table = ops::make_code_table(dynamic_map(sign));
    const auto* begin = reinterpret_cast<const std::byte*>(&table);
    bytes.insert(bytes.end(), begin, begin + sizeof(table));
  }
  write_chunks(ctx, work,
               [&](std::int64_t first, Tensor chunk) { std::memcpy(chunk.data, bytes.data() + first, chunk.bytes()); });
}

ops::CodedState CodeTables::coded(std::span<const Tensor> state, std::size_t i) const {
  const auto size = static_cast<std::int64_t>(sizeof(ops::CodeTable));
  return {.codes = state[2 * i],
          .absmax = state[2 * i + 1],
          .table = tables_.slice(static_cast<std::int64_t>(i) * size, size)};
}

}  // namespace qtrain
