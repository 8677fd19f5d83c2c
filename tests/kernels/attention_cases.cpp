#include "kernels/attention.h"

#include "tests/kernels/op_cases.h"

namespace qtrain::testing {
namespace {

/// y_i = sum_j softmax_j(scale q_i . k_j, capped) v_j over the keys of i's segment and window, and a sink of value 0.
std::vector<double> attention_formula(const AttentionSizes& n, const Arrays& in) {
  std::vector<double> y(static_cast<std::size_t>(n.T() * n.Hq * n.D));
  for (std::size_t s = 0; s + 1 < n.cu.size(); ++s)
    for (std::int64_t i = n.cu[s]; i < n.cu[s + 1]; ++i)
      for (std::int64_t h = 0; h < n.Hq; ++h) {
        const std::int64_t g = h / (n.Hq / n.Hkv);
        double sum = n.sinks ? std::exp(in[3].get(h)) : 0;
        double* row = y.data() + (i * n.Hq + h) * n.D;
        for (std::int64_t j = n.cu[s]; j <= i; ++j) {
          if (n.window > 0 && i - j >= n.window) continue;
          double score = 0;
          for (std::int64_t d = 0; d < n.D; ++d)
            score += in[0].get((i * n.Hq + h) * n.D + d) * in[1].get((j * n.Hkv + g) * n.D + d);
          score *= n.scale();
          if (n.softcap > 0) score = n.softcap * std::tanh(score / n.softcap);
          const double p = std::exp(score);
          sum += p;
          for (std::int64_t d = 0; d < n.D; ++d) row[d] += p * in[2].get((j * n.Hkv + g) * n.D + d);
        }
        for (std::int64_t d = 0; d < n.D; ++d) row[d] /= sum;
      }
  return y;
}

}  // namespace

std::int64_t AttentionSizes::memory_elements() const {
  return std::max<std::int64_t>(memory * static_cast<std::int64_t>(ops::attention_sum_bytes(T(), D) / 4), 1);
}

OpCase attention_case(const AttentionSizes& n) {
  const Shape q{n.T(), n.Hq, n.D}, kv{n.T(), n.Hkv, n.D};
  std::vector<Input> inputs{{"q", q}, {"k", kv}, {"v", kv}};
  if (n.sinks) inputs.push_back({"sinks", {n.Hq}, Storage::arithmetic});
  return {
      .name = "attention_" + n.name,
      .inputs = inputs,
      .forward =
          [=](Ctx& ctx, DType d, Arrays& in) {
            Arrays out{Array(d, q), Array(arithmetic_of(d), {n.Hq, n.T()})};
            Array cu = integers(n.cu);
            ops::attention(ctx, {.y = out[0],
                                 .lse = out[1],
                                 .q = in[0],
                                 .k = in[1],
                                 .v = in[2],
                                 .cu_seqlens = cu,
                                 .window = n.window,
                                 .scale = n.scale(),
                                 .softcap = n.softcap,
                                 .sinks = n.sinks ? ConstTensor(in[3].tensor()) : ConstTensor{}});
            return out;
          },
      .formula = [=](const Arrays& in) { return attention_formula(n, in); },
      .backward =
          [=](Ctx& ctx, DType, const OpCase::Backward& b) {
            Array cu = integers(n.cu), memory(DType::f32, {n.memory_elements()});
            ops::attention_grad(ctx, {.dq = b.gradients[0],
                                      .dk = b.gradients[1],
                                      .dv = b.gradients[2],
                                      .dy = b.dy,
                                      .y = b.outputs[0],
                                      .q = b.inputs[0],
                                      .k = b.inputs[1],
                                      .v = b.inputs[2],
                                      .lse = b.outputs[1],
                                      .cu_seqlens = cu,
                                      .window = n.window,
                                      .scale = n.scale(),
                                      .softcap = n.softcap,
                                      .memory = n.memory > 0 ? memory.tensor() : Tensor{}});
            if (n.sinks)
              ops::attention_sink_grad(
                  ctx,
                  {.dsinks = b.gradients[3], .dy = b.dy, .y = b.outputs[0], .lse = b.outputs[1], .sinks = b.inputs[3]});
          }};
}

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  for (const AttentionSizes& n : std::vector<AttentionSizes>{
           {.name = "one_token", .cu = {0, 1}, .Hq = 1, .Hkv = 1, .D = 2},
           {.name = "tiny_segments", .cu = {0, 1, 2, 2, 7, 8}, .Hq = 6, .Hkv = 2, .D = 6},
           {.name = "odd_heads", .cu = {0, 5, 50}, .Hq = 7, .Hkv = 7, .D = 10},
           {.name = "grouped", .cu = {0, 64, 67, 200}, .Hq = 9, .Hkv = 3, .D = 64},
           {.name = "window", .cu = {0, 33, 170}, .Hq = 4, .Hkv = 2, .D = 80, .window = 37},
           // Softcaps that affect many scores, so that tanh is evaluated near its limits and near 0.
           {.name = "softcap", .cu = {0, 33, 170}, .Hq = 4, .Hkv = 2, .D = 80, .window = 37, .softcap = 1.5},
           {.name = "softcap_wide_heads", .cu = {0, 2, 70}, .Hq = 2, .Hkv = 1, .D = 256, .softcap = 0.25},
           {.name = "softcap_odd_heads", .cu = {0, 5, 50}, .Hq = 7, .Hkv = 7, .D = 10, .softcap = 50},
           {.name = "sinks", .cu = {0, 33, 170}, .Hq = 4, .Hkv = 2, .D = 64, .window = 37, .sinks = true},
           {.name = "sinks_odd_heads", .cu = {0, 1, 2, 2, 7, 50}, .Hq = 6, .Hkv = 2, .D = 10, .sinks = true},
           {.name = "window_of_one", .cu = {0, 20}, .Hq = 2, .Hkv = 1, .D = 4, .window = 1},
           // Several blocks of keys and of queries, in one task or, for wide heads, in several.
           {.name = "long", .cu = {0, 10, 420}, .Hq = 2, .Hkv = 1, .D = 16},
           {.name = "long_window", .cu = {0, 7, 390}, .Hq = 1, .Hkv = 1, .D = 18, .window = 170},
           {.name = "wide_heads", .cu = {0, 2, 270}, .Hq = 2, .Hkv = 1, .D = 256},
           // Several tiles for the kernels of sm_90a, whose warpgroups take 64 queries each.
           {.name = "warpgroups", .cu = {0, 3, 270, 300}, .Hq = 2, .Hkv = 1, .D = 64, .window = 200},
           {.name = "warpgroups_wide_heads", .cu = {0, 30, 330}, .Hq = 2, .Hkv = 1, .D = 128, .sinks = true},
           {.name = "warpgroups_wide_window", .cu = {0, 30, 330}, .Hq = 2, .Hkv = 2, .D = 128, .window = 170},
           // All gradients in one kernel: several tiles of keys that add to a tile of dq, for heads of all tile widths,
           // with memory for all heads or for those of one key head.
           {.name = "sums", .cu = {0, 10, 420}, .Hq = 2, .Hkv = 1, .D = 16, .memory = 2},
           {.name = "sums_window", .cu = {0, 33, 300}, .Hq = 4, .Hkv = 2, .D = 80, .window = 150, .memory = 2},
           {.name = "sums_wide_heads", .cu = {0, 30, 290}, .Hq = 2, .Hkv = 1, .D = 104, .sinks = true, .memory = 2},
           {.name = "warpgroups_sums", .cu = {0, 3, 270, 300}, .Hq = 2, .Hkv = 1, .D = 64, .window = 200, .memory = 2},
           // As few tokens per document as documents with tiles of their own can have.
           {.name = "warpgroups_sums_of_64", .cu = {0, 64, 128, 192, 256}, .Hq = 2, .Hkv = 1, .D = 64, .memory = 2},
           {.name = "warpgroups_sums_wide_heads",
           .cu = {0, 30, 330},
           .Hq = 2,
           .Hkv = 1,
           .D = 128,
           .sinks = true,
           .memory = 2},
           {.name = "warpgroups_sums_wide_window",
           .cu = {0, 30, 330},
           .Hq = 4,
           .Hkv = 2,
           .D = 128,
           .window = 170,
           .memory = 2},
           // Tiles of keys start with the document: their last key is the one after the first query of a tile.
           {.name = "second_document", .cu = {0, 2, 200}, .Hq = 1, .Hkv = 1, .D = 64}})
    cases.push_back(attention_case(n));
  return cases;
}

}  // namespace qtrain::testing
