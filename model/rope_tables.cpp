#include "model/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/transfer.h"

namespace qtrain {
namespace {

std::vector<double> plain(double theta, std::int64_t head_dim) {
  std::vector<double> f(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < f.size(); ++i)
    f[i] = 1.0 / std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  return f;
}

// The base grows with the sequence once that is longer than in pre-training.
double dynamic_theta(const RopeConfig& r, std::int64_t head_dim, std::int64_t longest) {
  const double length = std::max(static_cast<double>(longest), r.original_max_position);
  const double d = static_cast<double>(head_dim);
  return r.theta * std::pow(r.factor * length / r.original_max_position - (r.factor - 1), d / (d - 2));
}

double llama3(const RopeConfig& r, double f) {
  const double wavelength = 2 * std::numbers::pi / f;
  if (wavelength > r.original_max_position / r.low_freq_factor) return f / r.factor;
  if (wavelength < r.original_max_position / r.high_freq_factor) return f;
  const double s =
      (r.original_max_position / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - s) * f / r.factor + s * f;
}

// The dimension whose wavelength makes `rotations` rotations over the original positions.
double correction_dim(const RopeConfig& r, double rotations, double d) {
  return d * std::log(r.original_max_position / (rotations * 2 * std::numbers::pi)) / (2 * std::log(r.theta));
}

void apply_yarn(const RopeConfig& r, std::int64_t head_dim, std::vector<double>& f) {
  const double d = static_cast<double>(head_dim);
  double low = correction_dim(r, r.beta_fast, d), high = correction_dim(r, r.beta_slow, d);
  if (r.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < f.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    f[i] = f[i] / r.factor * ramp + f[i] * (1 - ramp);
  }
}

double longrope_attention(const RopeConfig& r) {
  if (r.attention_factor) return *r.attention_factor;
  return r.factor <= 1 ? 1 : std::sqrt(1 + std::log(r.factor) / std::log(r.original_max_position));
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double yarn_attention(const RopeConfig& r) {
  if (r.attention_factor) return *r.attention_factor;
  if (r.mscale && r.mscale_all_dim && *r.mscale != 0 && *r.mscale_all_dim != 0)
    return yarn_mscale(r.factor, *r.mscale) / yarn_mscale(r.factor, *r.mscale_all_dim);
  return yarn_mscale(r.factor, 1);
}

// Applies `function` to every angle, starting at element `first` of a table.
template <class T, class Function>
void fill(const RopeFrequencies& f, std::int64_t first, Tensor part, Function function) {
  const auto half = static_cast<std::int64_t>(f.inv_freq.size());
  std::int64_t position = first / half, i = first % half;
  for (T& out : part.span<T>()) {
    const T phase = static_cast<T>(f.inv_freq[static_cast<std::size_t>(i)]) * static_cast<T>(position);
    out = static_cast<T>(function(phase) * static_cast<T>(f.factor_at(position)));
    if (++i < half) continue;
    i = 0;
    ++position;
  }
}

template <class T>
void fill_both(Ctx& ctx, const RopeFrequencies& f, const RopeTables& tables) {
  write_chunks(ctx, tables.cos, [&](std::int64_t first, Tensor part) {
    fill<T>(f, first, part, [](T phase) { return std::cos(phase); });
  });
  write_chunks(ctx, tables.sin, [&](std::int64_t first, Tensor part) {
    fill<T>(f, first, part, [](T phase) { return std::sin(phase); });
  });
}

}  // namespace

double RopeFrequencies::factor_at(std::int64_t position) const {
  if (length_scale == 0) return attention_factor;
  const double lengths = std::floor(static_cast<double>(position) / original_max_position);
  return attention_factor * (1 + length_scale * std::log1p(lengths));
}

RopeFrequencies rope_frequencies(const RopeConfig& r, std::int64_t head_dim, std::int64_t longest) {
  using Type = RopeConfig::Type;
  head_dim = r.dims(head_dim);
  RopeFrequencies out{.inv_freq = {}, .length_scale = r.length_scale, .original_max_position = r.original_max_position};
  const double theta = r.type == Type::dynamic ? dynamic_theta(r, head_dim, longest) : r.theta;
  out.inv_freq = plain(theta, head_dim);
  if (r.type == Type::linear)
    for (double& f : out.inv_freq) f /= r.factor;
  if (r.type == Type::llama3)
    for (double& f : out.inv_freq) f = llama3(r, f);
  if (r.type == Type::yarn) {
    apply_yarn(r, head_dim, out.inv_freq);
    out.attention_factor = yarn_attention(r);
  }
  if (r.type == Type::longrope) {
    const std::vector<double>& factors = r.is_long(longest) ? r.long_factors : r.short_factors;
    for (std::size_t i = 0; i < out.inv_freq.size(); ++i) out.inv_freq[i] /= factors[i];
    out.attention_factor = longrope_attention(r);
  }
  return out;
}

std::int64_t rope_state(const RopeConfig& r, std::int64_t longest) {
  if (r.type == RopeConfig::Type::dynamic) return longest;
  return r.is_long(longest) ? 1 : 0;
}

void fill_rope_tables(Ctx& ctx, const RopeFrequencies& f, const RopeTables& tables) {
  const Shape& shape = tables.cos.shape;
  check(shape == tables.sin.shape && shape[1] == static_cast<std::int64_t>(f.inv_freq.size()), "rope tables [P, D/2]");
  if (tables.cos.dtype == DType::f64) return fill_both<double>(ctx, f, tables);
  fill_both<float>(ctx, f, tables);
}

}  // namespace qtrain
