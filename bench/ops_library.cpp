#include "bench/ops_library.h"

#include <map>
#include <memory>
#include <string>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/code_table.h"
#include "kernels/cross_entropy.h"
#include "kernels/dynamic_map.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/glu.h"
#include "kernels/quantize.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

namespace qtrain::bench {
namespace {

std::string& last_error() {
  static std::string text;
  return text;
}

/// The arguments of a call, by their places.
class Arguments {
 public:
  Arguments(const QtrainCall& call, Device device) : call_(&call), device_(device) {}

  Tensor tensor(int i) const {
    const QtrainTensor& t = at(i);
    if (!t.data) return {};
    check(t.rank >= 1 && t.rank <= 4, "a tensor has one to four dimensions");
    Tensor view{static_cast<std::byte*>(t.data), dtype_of_name(t.dtype), {}, device_};
    view.shape.rank = t.rank;
    for (int d = 0; d < t.rank; ++d) view.shape.dims[static_cast<std::size_t>(d)] = t.dims[d];
    return view;
  }
  Sink sink(int i) const {
    if (!at(i).data) return discard();
    return at(i).adds ? accumulate(tensor(i)) : store(tensor(i));
  }
  bool has(int i) const { return i < call_->tensor_count && at(i).data; }
  double number(int i, double otherwise) const { return i < call_->number_count ? number(i) : otherwise; }
  double number(int i) const {
    check(i < call_->number_count, "the op takes more numbers");
    return call_->numbers[i];
  }

 private:
  static DType dtype_of_name(std::string_view name) {
    if (name == "int32") return DType::i32;
    if (name == "int64") return DType::i64;
    if (name == "float64") return DType::f64;
    return dtype_named(name);
  }
  const QtrainTensor& at(int i) const {
    check(i < call_->tensor_count, "the op takes more tensors");
    return call_->tensors[i];
  }
  const QtrainCall* call_;
  Device device_;
};

/// The maps of 8-bit state, on the session's device.
class StateMaps {
 public:
  explicit StateMaps(Device device)
      : device_(device), memory_(device, kMaps * sizeof(ops::CodeTable), "maps of codes") {
    Stream stream(device);
    for (const Signedness s : {Signedness::with_sign, Signedness::without_sign}) {
      const ops::CodeTable table = ops::make_code_table(dynamic_map(s));
      stream.copy(at(s), &table, sizeof(table));
      stream.synchronize();
    }
  }
  ConstTensor of(Signedness s) const { return {at(s), DType::u8, {sizeof(ops::CodeTable)}, device_}; }

 private:
  static constexpr std::size_t kMaps = 2;
  std::byte* at(Signedness s) const {
    return memory_.data() + (s == Signedness::with_sign ? 0 : sizeof(ops::CodeTable));
  }
  Device device_;
  DeviceMemory memory_;
};

using Run = void (*)(Ctx&, const Arguments&);

ops::Transpose transpose_of(double number) {
  return number != 0 ? ops::Transpose::yes : ops::Transpose::no;
}

/// Tensors in the order of `tensor` and `sink`, numbers in that of `number`.
const std::map<std::string, Run, std::less<>>& table() {
  static const std::map<std::string, Run, std::less<>> rows{
      {"copy", [](Ctx& c, const Arguments& a) { ops::copy(c, {.y = a.sink(0), .x = a.tensor(1)}); }},
      {"rms_norm",
       [](Ctx& c, const Arguments& a) {
         ops::rms_norm(c, {.y = a.tensor(0),
                           .inv_rms = a.tensor(1),
                           .x = a.tensor(2),
                           .weight = a.tensor(3),
                           .eps = a.number(0),
                           .residual = a.tensor(4),
                           .sum = a.tensor(5)});
       }},
      {"rms_norm_grad",
       [](Ctx& c, const Arguments& a) {
         ops::rms_norm_grad(c, {.dx = a.sink(0),
                                .dweight = a.sink(1),
                                .dy = a.tensor(2),
                                .x = a.tensor(3),
                                .weight = a.tensor(4),
                                .inv_rms = a.tensor(5)});
       }},
      {"rope",
       [](Ctx& c, const Arguments& a) {
         ops::rope(c, {.y = a.tensor(0),
                       .x = a.tensor(1),
                       .cos = a.tensor(2),
                       .sin = a.tensor(3),
                       .positions = a.tensor(4),
                       .weight = a.tensor(5),
                       .inv_rms = a.tensor(6),
                       .eps = a.number(0)});
       }},
      {"swiglu",
       [](Ctx& c, const Arguments& a) { ops::glu(c, {.y = a.tensor(0), .gate = a.tensor(1), .up = a.tensor(2)}); }},
      {"swiglu_grad",
       [](Ctx& c, const Arguments& a) {
         ops::glu_grad(
             c, {.dgate = a.sink(0), .dup = a.sink(1), .dy = a.tensor(2), .gate = a.tensor(3), .up = a.tensor(4)});
       }},
      {"cross_entropy",
       [](Ctx& c, const Arguments& a) {
         ops::cross_entropy(c, {.logits = a.tensor(0),
                                .loss = a.tensor(1),
                                .targets = a.tensor(2),
                                .gradient = ops::Gradient::in_place,
                                .scale = a.tensor(3)});
       }},
      {"adamw",
       [](Ctx& c, const Arguments& a) {
         ops::adamw(c, {.param = a.tensor(0),
                        .m = a.tensor(1),
                        .v = a.tensor(2),
                        .grad = a.tensor(3),
                        .hyperparameters = a.tensor(4),
                        .factor = a.tensor(5),
                        .decay = a.number(0)});
       }},
      {"adamw_8bit",
       [](Ctx& c, const Arguments& a) {
         const auto& maps = c.kept<StateMaps>();
         ops::adamw_8bit(c, {.param = a.tensor(0),
                             .m = {a.tensor(1), a.tensor(2), maps.of(Signedness::with_sign)},
                             .v = {a.tensor(3), a.tensor(4), maps.of(Signedness::without_sign)},
                             .grad = a.tensor(5),
                             .hyperparameters = a.tensor(6),
                             .factor = a.tensor(7),
                             .decay = a.number(0)});
       }},
      {"attention",
       [](Ctx& c, const Arguments& a) {
         ops::attention(c, {.y = a.tensor(0),
                            .lse = a.tensor(1),
                            .q = a.tensor(2),
                            .k = a.tensor(3),
                            .v = a.tensor(4),
                            .cu_seqlens = a.tensor(5),
                            .scale = a.number(0)});
       }},
      {"attention_grad",
       [](Ctx& c, const Arguments& a) {
         ops::attention_grad(c, {.dq = a.sink(0),
                                 .dk = a.sink(1),
                                 .dv = a.sink(2),
                                 .dy = a.tensor(3),
                                 .y = a.tensor(4),
                                 .q = a.tensor(5),
                                 .k = a.tensor(6),
                                 .v = a.tensor(7),
                                 .lse = a.tensor(8),
                                 .cu_seqlens = a.tensor(9),
                                 .scale = a.number(0)});
       }},
      {"gemm",  // and a second product, of tensors 3 and 4, for the same sums; alpha is number 2
       [](Ctx& c, const Arguments& a) {
         ops::Gemm g{.c = a.sink(0),
                     .a = a.tensor(1),
                     .b = a.tensor(2),
                     .transpose_a = transpose_of(a.number(0)),
                     .transpose_b = transpose_of(a.number(1)),
                     .alpha = a.number(2, 1)};
         if (a.has(3))
           g.added[0] = {
               .a = a.tensor(3), .b = a.tensor(4), .transpose_a = g.transpose_a, .transpose_b = g.transpose_b};
         ops::gemm(c, g);
       }},
      {"dequantize4",
       [](Ctx& c, const Arguments& a) {
         const Tensor y = a.tensor(0);
         ops::dequantize4(c, {.y = y,
                              .w = {.codes = a.tensor(1),
                                    .absmax = a.tensor(2),
                                    .map = a.tensor(3),
                                    .shape = y.shape,
                                    .blocksize = static_cast<int>(a.number(0))}});
       }},
      {"quantize4",
       [](Ctx& c, const Arguments& a) {
         ops::quantize4(c, {.codes = a.tensor(0),
                            .absmax = a.tensor(1),
                            .x = a.tensor(2),
                            .type = a.number(1) != 0 ? FourBit::fp4 : FourBit::nf4,
                            .blocksize = static_cast<int>(a.number(0))});
       }},
  };
  return rows;
}

void call_op(Ctx& ctx, const QtrainCall& call) {
  const auto row = table().find(std::string_view(call.op));
  if (row == table().end()) fail(ErrorKind::usage, {.cause = std::string("there is no op ") + call.op});
  row->second(ctx, Arguments(call, ctx.device()));
}

/// Exceptions do not leave the library.
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
  return qtrain::bench::succeeds([&] { qtrain::bench::call_op(*static_cast<Ctx*>(session), *call); }) ? 0 : 1;
}

const char* qtrain_error() {
  return qtrain::bench::last_error().c_str();
}
