#include "bench/cases/op_table.h"

#include <map>
#include <string>

#include "kernels/adafactor.h"
#include "kernels/adamw.h"
#include "kernels/adapter_grads.h"
#include "kernels/attention.h"
#include "kernels/code_table.h"
#include "kernels/cross_entropy.h"
#include "kernels/dynamic_map.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/glu.h"
#include "kernels/lion.h"
#include "kernels/muon.h"
#include "kernels/noise.h"
#include "kernels/quantize.h"
#include "kernels/reduce.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/sgd.h"
#include "kernels/split_rope.h"

namespace qtrain::bench {
namespace {

/// The arguments of a call, by index.
class Arguments {
 public:
  explicit Arguments(const OpCall& call) : call_(&call) {}

  Tensor tensor(std::size_t i) const { return at(i).tensor; }
  Sink sink(std::size_t i) const {
    if (!at(i).tensor.data) return discard();
    return at(i).adds ? accumulate(at(i).tensor) : store(at(i).tensor);
  }
  bool has(std::size_t i) const { return i < call_->tensors.size() && call_->tensors[i].tensor.data; }
  Tensor optional(std::size_t i) const { return has(i) ? tensor(i) : Tensor{}; }
  double number(std::size_t i) const {
    check(i < call_->numbers.size(), "the op takes more numbers");
    return call_->numbers[i];
  }
  double number(std::size_t i, double otherwise) const { return i < call_->numbers.size() ? number(i) : otherwise; }

 private:
  const Argument& at(std::size_t i) const {
    check(i < call_->tensors.size(), "the op takes more tensors");
    return call_->tensors[i];
  }
  const OpCall* call_;
};

/// The code tables of 8-bit state, on the context's device.
class StateMaps {
 public:
  explicit StateMaps(Device device) : device_(device), memory_(device, kMaps * sizeof(ops::CodeTable), "code maps") {
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

ops::Transpose transpose_of(double number) {
  return number != 0 ? ops::Transpose::yes : ops::Transpose::no;
}

/// A 4-bit matrix whose parts start at argument `first`: codes, absmax, map, and optionally the nested scales.
ops::Blocks4 blocks4(const Arguments& a, std::size_t first, const Shape& shape) {
  return {.codes = a.tensor(first),
          .absmax = a.tensor(first + 1),
          .map = a.tensor(first + 2),
          .nested_absmax = a.optional(first + 3),
          .nested_map = a.optional(first + 4),
          .offset = a.optional(first + 5),
          .shape = shape,
          .blocksize = static_cast<int>(a.number(0))};
}

using Run = void (*)(Ctx&, const Arguments&);
using Rows = std::map<std::string_view, Run>;

Rows elementwise_rows() {
  return {
      {"add", [](Ctx& c, const Arguments& a) { ops::add(c, {.y = a.tensor(0), .a = a.tensor(1), .b = a.tensor(2)}); }},
      {"copy", [](Ctx& c, const Arguments& a) { ops::copy(c, {.y = a.sink(0), .x = a.tensor(1)}); }},
      {"dropout",
       [](Ctx& c, const Arguments& a) {
         ops::dropout(c, {.y = a.sink(0), .x = a.tensor(1), .seed = a.tensor(2), .stream = 3, .p = a.number(0)});
       }},
      {"add_noise",
       [](Ctx& c, const Arguments& a) {
         ops::add_noise(c, {.y = a.tensor(0), .keys = a.tensor(1), .magnitudes = a.tensor(2)});
       }},
      {"adapter_grads",
       [](Ctx& c, const Arguments& a) {
         ops::adapter_grads(
             c, {.layers = {
                     {{.dy = a.tensor(0), .b = a.tensor(1), .u = a.tensor(2), .du = a.tensor(3), .db = a.sink(4)}}}});
       }},
      {"swiglu",
       [](Ctx& c, const Arguments& a) { ops::glu(c, {.y = a.tensor(0), .gate = a.tensor(1), .up = a.tensor(2)}); }},
      {"swiglu_grad",
       [](Ctx& c, const Arguments& a) {
         ops::glu_grad(
             c, {.dgate = a.sink(0), .dup = a.sink(1), .dy = a.tensor(2), .gate = a.tensor(3), .up = a.tensor(4)});
       }},
      {"packed_glu", [](Ctx& c, const Arguments& a) { ops::packed_glu(c, {.y = a.tensor(0), .x = a.tensor(1)}); }},
      {"packed_glu_grad",
       [](Ctx& c, const Arguments& a) {
         ops::packed_glu_grad(c, {.dx = a.sink(0), .dy = a.tensor(1), .x = a.tensor(2)});
       }},
      {"clamped_glu",
       [](Ctx& c, const Arguments& a) {
         ops::packed_glu(
             c, {.y = a.tensor(0), .x = a.tensor(1), .order = ops::GluOrder::pairs, .alpha = 1.702, .limit = 7});
       }},
      {"clamped_glu_grad",
       [](Ctx& c, const Arguments& a) {
         ops::packed_glu_grad(c, {.dx = a.sink(0),
                                  .dy = a.tensor(1),
                                  .x = a.tensor(2),
                                  .order = ops::GluOrder::pairs,
                                  .alpha = 1.702,
                                  .limit = 7});
       }},
      {"segment_squares",
       [](Ctx& c, const Arguments& a) {
         ops::segment_squares(c, {.out = a.tensor(0), .x = a.tensor(1), .segment = 1024});
       }},
      {"sum_squares", [](Ctx& c, const Arguments& a) { ops::sum_squares(c, {.out = a.sink(0), .x = a.tensor(1)}); }},
  };
}

Rows row_wise_rows() {
  return {
      {"rms_norm",
       [](Ctx& c, const Arguments& a) {
         ops::rms_norm(
             c,
             {.y = a.tensor(0), .inv_rms = a.tensor(1), .x = a.tensor(2), .weight = a.tensor(3), .eps = a.number(0)});
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
         ops::rope(c, {.q = {.y = a.tensor(0), .x = a.tensor(2), .weight = a.tensor(7), .inv_rms = a.tensor(8)},
                       .k = {.y = a.tensor(1), .x = a.tensor(3), .weight = a.tensor(7), .inv_rms = a.tensor(9)},
                       .cos = a.tensor(4),
                       .sin = a.tensor(5),
                       .positions = a.tensor(6),
                       .eps = a.number(0)});
       }},
      {"rope_grad",
       [](Ctx& c, const Arguments& a) {
         const auto heads = [&](std::size_t which) {
           return ops::RopeGrad::Heads{.dx = a.sink(which),
                                       .dy = a.tensor(2 + which),
                                       .x = a.tensor(4 + which),
                                       .weight = a.tensor(9),
                                       .inv_rms = a.tensor(10 + which),
                                       .dweight = a.sink(12 + which)};
         };
         ops::rope_grad(
             c, {.q = heads(0), .k = heads(1), .cos = a.tensor(6), .sin = a.tensor(7), .positions = a.tensor(8)});
       }},
      {"split_rope",
       [](Ctx& c, const Arguments& a) {
         ops::split_rope(c, {.q = a.tensor(0),
                             .k = a.tensor(1),
                             .v = a.tensor(2),
                             .qkv = a.tensor(3),
                             .cos = a.tensor(4),
                             .sin = a.tensor(5),
                             .positions = a.tensor(6)});
       }},
      {"split_rope_grad",
       [](Ctx& c, const Arguments& a) {
         ops::split_rope_grad(c, {.dqkv = a.sink(0),
                                  .dq = a.tensor(1),
                                  .dk = a.tensor(2),
                                  .dv = a.tensor(3),
                                  .cos = a.tensor(4),
                                  .sin = a.tensor(5),
                                  .positions = a.tensor(6)});
       }},
      {"embedding_grad",
       [](Ctx& c, const Arguments& a) {
         ops::embedding_grad(c, {.dtable = a.sink(0), .dy = a.tensor(1), .tokens = a.tensor(2)});
       }},
      {"cross_entropy",
       [](Ctx& c, const Arguments& a) {
         ops::cross_entropy(c, {.logits = a.tensor(0),
                                .loss = a.tensor(1),
                                .targets = a.tensor(2),
                                .gradient = ops::Gradient::in_place,
                                .scale = a.tensor(3)});
       }},
  };
}

Rows attention_rows() {
  return {
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
      {"attention_sink_grad",
       [](Ctx& c, const Arguments& a) {
         ops::attention_sink_grad(
             c, {.dsinks = a.sink(0), .dy = a.tensor(1), .y = a.tensor(2), .lse = a.tensor(3), .sinks = a.tensor(4)});
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
                                 .scale = a.number(0),
                                 .memory = a.optional(10)});
       }},
  };
}

Rows matmul_rows() {
  return {
      {"gemm",  // with an optional second GEMM of tensors 3 and 4 added into the result; alpha is number 2
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
      {"gemm4",
       [](Ctx& c, const Arguments& a) {
         const Shape weight{a.tensor(0).shape[-1], a.tensor(1).shape[-1]};
         ops::gemm4(c, {.c = a.sink(0), .a = a.tensor(1), .w = blocks4(a, 2, weight)});
       }},
      {"gemm_rows8",
       [](Ctx& c, const Arguments& a) {
         ops::gemm_rows8(c, {.c = a.sink(0), .a = a.tensor(1), .codes = a.tensor(2), .scale = a.tensor(3)});
       }},
      {"dequantize4",
       [](Ctx& c, const Arguments& a) {
         ops::dequantize4(c, {.y = a.tensor(0), .w = blocks4(a, 1, a.tensor(0).shape)});
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
}

/// AdamW with unquantized moments.
template <class Op>
Op adamw_of(const Arguments& a) {
  return {.param = a.tensor(0),
          .m = a.tensor(1),
          .v = a.tensor(2),
          .grad = a.tensor(3),
          .hyperparameters = a.tensor(4),
          .factor = a.tensor(5),
          .decay = a.number(0)};
}

// Number 0 is the weight decay.
Rows optimizer_rows() {
  return {
      {"adamw", [](Ctx& c, const Arguments& a) { ops::adamw(c, adamw_of<ops::AdamW>(a)); }},
      {"adamw_bf16", [](Ctx& c, const Arguments& a) { ops::adamw_bf16(c, adamw_of<ops::AdamWBf16>(a)); }},
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
      {"lion",
       [](Ctx& c, const Arguments& a) {
         ops::lion(c, {.param = a.tensor(0),
                       .m = a.tensor(1),
                       .grad = a.tensor(2),
                       .hyperparameters = a.tensor(3),
                       .factor = a.tensor(4),
                       .decay = a.number(0)});
       }},
      {"lion_8bit",
       [](Ctx& c, const Arguments& a) {
         ops::lion_8bit(c, {.param = a.tensor(0),
                            .m = {a.tensor(1), a.tensor(2), c.kept<StateMaps>().of(Signedness::with_sign)},
                            .grad = a.tensor(3),
                            .hyperparameters = a.tensor(4),
                            .factor = a.tensor(5),
                            .decay = a.number(0)});
       }},
      {"sgd_momentum",
       [](Ctx& c, const Arguments& a) {
         ops::sgd(c, {.param = a.tensor(0),
                      .momentum_buffer = a.tensor(1),
                      .grad = a.tensor(2),
                      .hyperparameters = a.tensor(3),
                      .factor = a.tensor(4),
                      .momentum = 0.9});
       }},
      {"adafactor",
       [](Ctx& c, const Arguments& a) {
         ops::adafactor(c, {.param = a.tensor(0),
                            .row = a.tensor(1),
                            .column = a.tensor(2),
                            .grad = a.tensor(3),
                            .hyperparameters = a.tensor(4),
                            .factor = a.tensor(5)});
       }},
      {"muon_momentum",
       [](Ctx& c, const Arguments& a) {
         ops::muon_momentum(
             c, {.momentum_buffer = a.tensor(0), .y = a.tensor(1), .grad = a.tensor(2), .factor = a.tensor(3)});
       }},
      {"muon_apply",
       [](Ctx& c, const Arguments& a) {
         ops::muon_apply(c, {.param = a.tensor(0),
                             .x = a.tensor(1),
                             .hyperparameters = a.tensor(2),
                             .factor = a.tensor(3),
                             .decay = a.number(0)});
       }},
  };
}

const Rows& table() {
  static const Rows rows = [] {
    Rows all;
    for (const Rows& some : {elementwise_rows(), row_wise_rows(), attention_rows(), matmul_rows(), optimizer_rows()})
      all.insert(some.begin(), some.end());
    return all;
  }();
  return rows;
}

}  // namespace

void call_op(Ctx& ctx, const OpCall& call) {
  const auto row = table().find(call.op);
  if (row == table().end()) fail(ErrorKind::usage, {.cause = "unknown op " + std::string(call.op)});
  row->second(ctx, Arguments(call));
}

}  // namespace qtrain::bench
