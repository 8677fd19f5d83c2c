#include "bench/ops_library.h"

#include <memory>
#include <string>

#include "bench/cases/op_table.h"

namespace qtrain::bench {
namespace {

std::string& last_error() {
  static std::string text;
  return text;
}

DType dtype_of_name(std::string_view name) {
  if (name == "int32") return DType::i32;
  if (name == "int64") return DType::i64;
  if (name == "float64") return DType::f64;
  return dtype_named(name);
}

Argument argument_of(const QtrainTensor& t, Device device) {
  if (!t.data) return {};
  check(t.rank >= 1 && t.rank <= 4, "a tensor has one to four dimensions");
  Tensor view{static_cast<std::byte*>(t.data), dtype_of_name(t.dtype), {}, device};
  view.shape.rank = t.rank;
  for (int d = 0; d < t.rank; ++d) view.shape.dims[static_cast<std::size_t>(d)] = t.dims[d];
  return {view, t.adds != 0};
}

void call(Ctx& ctx, const QtrainCall& c) {
  std::vector<Argument> tensors;
  for (int i = 0; i < c.tensor_count; ++i) tensors.push_back(argument_of(c.tensors[i], ctx.device()));
  call_op(ctx, {.op = c.op, .tensors = tensors, .numbers = {c.numbers, static_cast<std::size_t>(c.number_count)}});
}

/// Keeps exceptions from leaving the library.
template <class F>
bool succeeds(const F& f) {
  try {
    f();
    return true;
  } catch (const std::exception& e) {
    last_error() = e.what();
    return false;
  }
}

}  // namespace
}  // namespace qtrain::bench

using qtrain::Ctx;

void* qtrain_open(const char* device) {
  Ctx* session = nullptr;
  qtrain::bench::succeeds([&] {
    const std::string_view name(device);
    qtrain::check(name == "cpu" || name == "cuda", "a device is cpu or cuda");
    session = std::make_unique<Ctx>(qtrain::Device{name == "cuda" ? qtrain::DeviceKind::cuda : qtrain::DeviceKind::cpu})
                  .release();
  });
  return session;
}

void qtrain_close(void* session) {
  std::unique_ptr<Ctx>(static_cast<Ctx*>(session)).reset();
}

void* qtrain_stream(void* session) {
  return static_cast<Ctx*>(session)->stream().handle();
}

int qtrain_call(void* session, const QtrainCall* call) {
  return qtrain::bench::succeeds([&] { qtrain::bench::call(*static_cast<Ctx*>(session), *call); }) ? 0 : 1;
}

const char* qtrain_error() {
  return qtrain::bench::last_error().c_str();
}
