#pragma once
#include <cmath>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/glu.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "model/stage.h"

namespace qtrain {

using enum Slot;

inline bool trains_nothing(const BlockWeights&) {
  return false;
}

/// Out = rms_norm(In) * weight
template <Slot In, Slot Out, Slot Rms, NormWeight BlockWeights::*Weight>
inline constexpr Stage norm_stage{
    .name = "norm",
    .reads = {In},
    .writes = {Out, Rms},
    .adjoint_reads = {In, Rms},
    .weight_reads = {},
    .trains = [](const BlockWeights& w) { return (w.*Weight).grad.wanted(); },
    .forward =
        [](BlockRun& r) {
          ops::rms_norm(
              r.ctx, {.y = r.s[Out], .inv_rms = r.s[Rms], .x = r.s[In], .weight = (r.w.*Weight).weight, .eps = r.eps});
        },
    .backward =
        [](BlockRun& r) {
          ops::rms_norm_grad(r.ctx, {.dx = r.grad(In),
                                     .dweight = (r.w.*Weight).grad,
                                     .dy = r.d[Out],
                                     .x = r.s[In],
                                     .weight = (r.w.*Weight).weight,
                                     .inv_rms = r.s[Rms]});
        }};

/// A layer of a linear stage, and where its result goes.
template <Slot Out, Projection BlockWeights::*Weight>
struct Linear {
  static const Projection& of(const BlockWeights& w) { return w.*Weight; }
  static constexpr Slot kOut = Out;
};

/// Out = In · W^T + bias (+ adapter) for each of the layers. Lora holds the adapters' A·x.
template <Slot In, Slot Lora, class... Layer>
inline constexpr Stage linear_stage{.name = "linear",
                                    .reads = {In},
                                    .writes = {Layer::kOut..., Lora},
                                    .adjoint_reads = {},
                                    .weight_reads = {In, Lora},
                                    .trains = [](const BlockWeights& w) { return (Layer::of(w).trains() || ...); },
                                    .forward =
                                        [](BlockRun& r) {
                                          project(r.ctx, {.layers = {{Layer::of(r.w), r.s[Layer::kOut]}...},
                                                          .lora_x = r.s[Lora],
                                                          .x = r.s[In],
                                                          .scratch = r.scratch,
                                                          .dropout_seed = r.tokens.dropout_seed,
                                                          .dense = r.dense});
                                        },
                                    .backward =
                                        [](BlockRun& r) {
                                          project_grad(r.ctx, {.layers = {{Layer::of(r.w), r.d[Layer::kOut]}...},
                                                               .dx = r.grad(In),
                                                               .x = r.s[In],
                                                               .lora_x = r.s[Lora],
                                                               .scratch = r.scratch,
                                                               .dropout_seed = r.tokens.dropout_seed,
                                                               .dense = r.dense});
                                        }};

inline Tensor as_heads(Tensor t, std::int64_t head_dim) {
  return t.reshaped({t.shape[0], t.shape[1] / head_dim, head_dim});
}

/// Out = rotate(head_norm(In)); the norm only where the family has one (then its adjoint reads In and Rms).
template <Slot In, Slot Out, Slot Rms, NormWeight BlockWeights::*Weight>
inline constexpr Stage rope_stage{.name = "rope",
                                  .reads = {In},
                                  .writes = {Out, Rms},
                                  .adjoint_reads = {},
                                  .weight_reads = {In, Rms},
                                  .trains = [](const BlockWeights& w) { return (w.*Weight).weight.shape.rank > 0; },
                                  .forward =
                                      [](BlockRun& r) {
                                        const std::int64_t d = 2 * r.tokens.cos.shape[1];
                                        ops::rope(r.ctx, {.y = as_heads(r.s[Out], d),
                                                          .x = as_heads(r.s[In], d),
                                                          .cos = r.tokens.cos,
                                                          .sin = r.tokens.sin,
                                                          .positions = r.tokens.positions,
                                                          .weight = (r.w.*Weight).weight,
                                                          .inv_rms = r.s[Rms],
                                                          .eps = r.eps});
                                      },
                                  .backward =
                                      [](BlockRun& r) {
                                        const std::int64_t d = 2 * r.tokens.cos.shape[1];
                                        Sink dx = r.grad(In);
                                        dx.t = as_heads(dx.t, d);
                                        ops::rope_grad(r.ctx, {.dx = dx,
                                                               .dy = as_heads(r.d[Out], d),
                                                               .cos = r.tokens.cos,
                                                               .sin = r.tokens.sin,
                                                               .positions = r.tokens.positions,
                                                               .x = as_heads(r.s[In], d),
                                                               .weight = (r.w.*Weight).weight,
                                                               .inv_rms = r.s[Rms],
                                                               .dweight = (r.w.*Weight).grad});
                                      }};

inline double attention_scale(std::int64_t head_dim) {
  return 1 / std::sqrt(static_cast<double>(head_dim));
}

/// att = softmax(q k^T / sqrt(D)) v within each segment
inline constexpr Stage attention_stage{.name = "attention",
                                       .reads = {q_rot, k_rot, v},
                                       .writes = {att, lse},
                                       .adjoint_reads = {q_rot, k_rot, v, att, lse},
                                       .weight_reads = {},
                                       .trains = trains_nothing,
                                       .forward =
                                           [](BlockRun& r) {
                                             const std::int64_t d = 2 * r.tokens.cos.shape[1];
                                             ops::attention(r.ctx, {.y = as_heads(r.s[att], d),
                                                                    .lse = r.s[lse],
                                                                    .q = as_heads(r.s[q_rot], d),
                                                                    .k = as_heads(r.s[k_rot], d),
                                                                    .v = as_heads(r.s[v], d),
                                                                    .cu_seqlens = r.tokens.cu_seqlens,
                                                                    .window = r.window,
                                                                    .scale = attention_scale(d)});
                                           },
                                       .backward =
                                           [](BlockRun& r) {
                                             const std::int64_t d = 2 * r.tokens.cos.shape[1];
                                             const auto heads = [&](Sink s) { return Sink{as_heads(s.t, d), s.mode}; };
                                             ops::attention_grad(r.ctx, {.dq = heads(r.grad(q_rot)),
                                                                         .dk = heads(r.grad(k_rot)),
                                                                         .dv = heads(r.grad(v)),
                                                                         .dy = as_heads(r.d[att], d),
                                                                         .y = as_heads(r.s[att], d),
                                                                         .q = as_heads(r.s[q_rot], d),
                                                                         .k = as_heads(r.s[k_rot], d),
                                                                         .v = as_heads(r.s[v], d),
                                                                         .lse = r.s[lse],
                                                                         .cu_seqlens = r.tokens.cu_seqlens,
                                                                         .window = r.window,
                                                                         .scale = attention_scale(d)});
                                           }};

/// The same against a key/value cache, for generation: it has no adjoint.
inline constexpr Stage cached_attention_stage{
    .name = "cached_attention",
    .reads = {q_rot, k_rot, v},
    .writes = {att, lse},
    .adjoint_reads = {},
    .weight_reads = {},
    .trains = trains_nothing,
    .forward =
        [](BlockRun& r) {
          const TokenContext& t = r.tokens;
          const std::int64_t d = 2 * t.cos.shape[1];
          ops::cache_append(
              r.ctx,
              {.cache = t.key_cache, .x = as_heads(r.s[k_rot], d), .rows = t.cache_rows, .positions = t.positions});
          ops::cache_append(
              r.ctx,
              {.cache = t.value_cache, .x = as_heads(r.s[v], d), .rows = t.cache_rows, .positions = t.positions});
          ops::cached_attention(r.ctx, {.y = as_heads(r.s[att], d),
                                        .q = as_heads(r.s[q_rot], d),
                                        .keys = t.key_cache,
                                        .values = t.value_cache,
                                        .rows = t.cache_rows,
                                        .positions = t.positions,
                                        .window = r.window,
                                        .scale = attention_scale(d)});
        },
    .backward = [](BlockRun&) { check(false, "generation has no backward pass"); }};

inline constexpr Stage swiglu_stage{
    .name = "swiglu",
    .reads = {gate, up},
    .writes = {act},
    .adjoint_reads = {gate, up},
    .weight_reads = {},
    .trains = trains_nothing,
    .forward = [](BlockRun& r) { ops::glu(r.ctx, {.y = r.s[act], .gate = r.s[gate], .up = r.s[up]}); },
    .backward =
        [](BlockRun& r) {
          ops::glu_grad(r.ctx,
                        {.dgate = r.grad(gate), .dup = r.grad(up), .dy = r.d[act], .gate = r.s[gate], .up = r.s[up]});
        }};

/// Out = Residual + Branch. The gradient of the residual stream is one buffer that all three share (see Activations),
/// so the adjoint has nothing to do.
template <Slot Residual, Slot Branch, Slot Out>
inline constexpr Stage add_stage{
    .name = "add",
    .reads = {Residual, Branch},
    .writes = {Out},
    .adjoint_reads = {},
    .weight_reads = {},
    .trains = trains_nothing,
    .forward = [](BlockRun& r) { ops::add(r.ctx, {.y = r.s[Out], .a = r.s[Residual], .b = r.s[Branch]}); },
    .backward = [](BlockRun&) {}};

template <const Stage& Attention>
inline constexpr Stage kDecoderBlock[] = {
    norm_stage<x, norm1, rms1, &BlockWeights::norm1>,
    linear_stage<norm1, lora_qkv, Linear<q, &BlockWeights::q>, Linear<k, &BlockWeights::k>,
                 Linear<v, &BlockWeights::v>>,
    rope_stage<q, q_rot, q_rms, &BlockWeights::q_norm>,
    rope_stage<k, k_rot, k_rms, &BlockWeights::k_norm>,
    Attention,
    linear_stage<att, lora_o, Linear<proj, &BlockWeights::o>>,
    add_stage<x, proj, mid>,
    norm_stage<mid, norm2, rms2, &BlockWeights::norm2>,
    linear_stage<norm2, lora_gate_up, Linear<gate, &BlockWeights::gate>, Linear<up, &BlockWeights::up>>,
    swiglu_stage,
    linear_stage<act, lora_down, Linear<down, &BlockWeights::down>>,
    add_stage<mid, down, out>,
};

}  // namespace qtrain
