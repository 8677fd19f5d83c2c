#include "convert/adapter_deltas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "model/hf_folder.h"

namespace qtrain {
namespace {

/// Name endings of a module's factors: A [r, in] and B [out, r] of a linear layer [out, in], or A [r, rows] and B
/// [width, r] of an embedding [rows, width].
struct FactorNames {
  std::string_view a, b;
};
constexpr FactorNames kLinearFactors{".lora_A.weight", ".lora_B.weight"},
    kEmbeddingFactors{".lora_embedding_A", ".lora_embedding_B"};
constexpr std::string_view kMagnitude = ".lora_magnitude_vector";
// The embedding itself, which PEFT saves along with an adapter on it.
constexpr std::string_view kBaseLayer = ".base_layer.weight";

std::string module_of_weight(const std::string& weight) {
  return weight.substr(0, weight.rfind('.'));
}

// A matrix converted to f32.
struct Matrix {
  std::vector<float> values;
  Shape shape;

  ConstTensor view() const { return view_of(std::span(values), shape); }
};
Matrix in_f32(Ctx& ctx, ConstTensor t) {
  Matrix m{.values = std::vector<float>(static_cast<std::size_t>(t.numel())), .shape = t.shape};
  ops::run_cpu(ctx, ops::Copy{.y = store(view_of(std::span(m.values), m.shape)), .x = t});
  return m;
}

/// The part of a transformers parameter that a file stores as one matrix per expert.
struct ExpertPart {
  std::string_view name, parameter;
  std::int64_t part, parts;
};
constexpr ExpertPart kExpertParts[] = {
    {"gate_proj", "gate_up_proj", 0, 2}, {"up_proj", "gate_up_proj", 1, 2}, {"down_proj", "down_proj", 0, 1}};
constexpr std::string_view kInnerFactors = ".base_layer", kExperts = ".experts", kRouterWeight = ".gate.weight";

// The transformers parameter that contains a weight of a file: "model.layers.0.mlp.experts.gate_up_proj" for
// "model.layers.0.mlp.experts.3.up_proj.weight".
std::string parameter_of(const std::string& weight) {
  const std::string module = module_of_weight(weight);
  const std::size_t experts = module.find(std::string(kExperts) + "."), leaf = module.rfind('.');
  if (experts == std::string::npos) return weight;
  const std::string container = module.substr(0, experts + kExperts.size());
  for (const ExpertPart& p : kExpertParts)
    if (module.substr(leaf + 1) == p.name) return fmt::format("{}.{}", container, p.parameter);
  return weight;
}

// Renames a weight of a mixture of experts, such as "X.mlp.experts.3.up_proj.weight", from one naming scheme to
// another.
std::string renamed(const std::string& weight, const ExpertNames& from, const ExpertNames& to) {
  const std::string module = "." + from.module + ".";
  const std::size_t at = weight.find(module);
  if (at == std::string::npos) return weight;
  std::string rest = weight.substr(at + module.size());
  const bool experts = rest.starts_with(kExperts.substr(1));
  if (!experts && !rest.starts_with("gate.")) return weight;
  const std::pair<const std::string&, const std::string&> parts[] = {
      {from.gate, to.gate}, {from.up, to.up}, {from.down, to.down}};
  for (const auto& [old, now] : parts)
    if (const std::string end = "." + old + ".weight"; experts && rest.ends_with(end)) {
      rest = rest.substr(0, rest.size() - end.size()) + "." + now + ".weight";
      break;
    }
  return weight.substr(0, at) + "." + to.module + "." + rest;
}

template <class Map>
void rename_keys(Map& map, const ExpertNames& to) {
  Map others;
  for (auto& [weight, value] : map) others.emplace(renamed(weight, {}, to), std::move(value));
  map = std::move(others);
}

// B [out, r] of one expert, in f32.
Matrix expert_b(const AdapterFactors& f) {
  const AdapterFactors::Expert& e = *f.expert;
  const std::int64_t out = f.out(), r = f.rank();
  Matrix m{.values = std::vector<float>(static_cast<std::size_t>(out * r)), .shape = {out, r}};
  dispatch_float(f.b.dtype, [&]<class T>() {
    const T* rows = f.b.as<T>() + e.part * out * r * e.experts + e.index;
    for (std::int64_t i = 0; i < out * r; ++i)
      m.values[static_cast<std::size_t>(i)] = static_cast<float>(rows[i * e.experts]);
  });
  return m;
}

// Scales the rows of w [out, in] to the L2 norms m [out].
void set_row_norms(Tensor w, const Matrix& m) {
  const std::int64_t in = w.shape[1];
  for (std::int64_t row = 0; row < w.shape[0]; ++row) {
    float* const begin = w.as<float>() + row * in;
    double squares = 0;
    for (std::int64_t i = 0; i < in; ++i) squares += static_cast<double>(begin[i]) * begin[i];
    const double factor = squares > 0 ? m.values[static_cast<std::size_t>(row)] / std::sqrt(squares) : 0;
    for (std::int64_t i = 0; i < in; ++i) begin[i] = static_cast<float>(factor * begin[i]);
  }
}

}  // namespace

AdapterDeltas::AdapterDeltas(const std::filesystem::path& folder, const ExpertNames& experts)
    : folder_(folder), experts_(experts), config_(load_lora_config(folder)), reader_(folder) {
  if (!reader_.unusable().empty()) refuse(reader_.unusable().begin()->first, reader_.unusable().begin()->second);
  if (config_.dora && !config_.target_parameters.empty())
    fail(ErrorKind::input, {.cause = "adapters on routers and experts (\"target_parameters\") have no magnitudes, but "
                                     "adapter_config.json sets use_dora",
                            .place = reader_.path().string(),
                            .remedy = "PEFT refuses it too; train without one of them"});
  for (const auto& [name, tensor] : reader_.tensors()) read_tensor(name, tensor);
  split_experts();
  ignore_untargeted();
  for (auto& [weight, pair] : pairs_) check_pair(weight, pair);
  rename_keys(pairs_, experts_);
  rename_keys(shapes_, experts_);
  rename_keys(whole_, experts_);
  rename_keys(tensors_, experts_);
}

void AdapterDeltas::ignore(const std::string& weight) {
  std::vector<std::string> names = tensors_.contains(weight) ? tensors_.at(weight) : std::vector{weight};
  ignored_.insert(ignored_.end(), names.begin(), names.end());
}

void AdapterDeltas::ignore_untargeted() {
  std::erase_if(pairs_, [&](const auto& entry) {
    const bool targeted = entry.second.expert || names_weight(entry.first);
    if (!targeted) ignore(entry.first);
    return !targeted;
  });
}

void AdapterDeltas::leave_out(const std::string& weight) {
  ignore(weight);
  pairs_.erase(weight);
  whole_.erase(weight);
  shapes_.erase(weight);
}

// PEFT nests the wrappers of a module's parameters, with the last one outermost: gate_up_proj, then down_proj. Their
// pairs have the name of the module, which has no weight of its own, and are split into pairs of each expert's
// matrices.
void AdapterDeltas::split_experts() {
  std::map<std::string, AdapterFactors> modules;
  for (auto it = pairs_.begin(); it != pairs_.end();) {
    const std::string module = module_of_weight(it->first);
    const bool is_of_experts =
        module.ends_with(kExperts) || module.ends_with(std::string(kExperts) + std::string(kInnerFactors));
    if (is_of_experts) modules[module] = it->second;
    it = is_of_experts ? pairs_.erase(it) : std::next(it);
  }
  for (const auto& [name, all] : modules) {
    const bool inner = name.ends_with(kInnerFactors);
    const std::string container = inner ? name.substr(0, name.size() - kInnerFactors.size()) : name;
    const std::string first = container + ".gate_up_proj", second = container + ".down_proj";
    const bool has_first = names_parameter(config_, first), has_second = names_parameter(config_, second);
    const bool nested = modules.contains(container + std::string(kInnerFactors));
    if (has_first && has_second && !nested)
      refuse(container, "lacks the factors that \"target_parameters\" of adapter_config.json names");
    const bool is_named = has_first || has_second, is_wrapped = has_first && has_second;
    if (!is_named || (inner && !is_wrapped))
      ignore(name + ".weight");
    else
      split(inner || !has_second ? first : second, all);
  }
}

void AdapterDeltas::split(const std::string& parameter, const AdapterFactors& all) {
  const std::size_t dot = parameter.rfind('.');
  const std::int64_t r = config_.rank_of(parameter);
  if (!all.a || !all.b || all.a.shape.rank != 2 || all.b.shape.rank != 2 || all.a.shape[0] % r != 0 ||
      all.a.shape[0] != all.b.shape[1])
    refuse(parameter, fmt::format("has no lora_A [experts * r, in] and lora_B [out, r * experts] of rank {}", r));
  const std::int64_t experts = all.a.shape[0] / r;
  for (const ExpertPart& p : kExpertParts) {
    if (parameter.substr(dot + 1) != p.parameter) continue;
    if (all.b.shape[0] % p.parts != 0) refuse(parameter, "has a lora_B that cannot be split into two matrices");
    for (std::int64_t e = 0; e < experts; ++e)
      pairs_[fmt::format("{}.{}.{}.weight", parameter.substr(0, dot), e, p.name)] = {
          .a = all.a.slice(e * r, r),
          .b = all.b,
          .expert = AdapterFactors::Expert{.index = e, .experts = experts, .part = p.part, .parts = p.parts}};
  }
}

const std::map<std::string, AdapterFactors>& AdapterDeltas::factors() const {
  for (const auto& [weight, pair] : pairs_)
    if (pair.expert || names_parameter(config_, renamed(weight, experts_, {})))
      fail(ErrorKind::input,
           {.cause = "an adapter on routers or experts (\"target_parameters\") has no pair of factors "
                     "for each weight",
            .place = fmt::format("{}: {}", reader_.path().string(), weight),
            .remedy = "merge it into the model (qtrain merge)"});
  return pairs_;
}

void AdapterDeltas::refuse(const std::string& name, const std::string& why) const {
  fail(ErrorKind::input, {.cause = why, .place = fmt::format("{}: {}", reader_.path().string(), name)});
}

void AdapterDeltas::require_float(const std::string& name, ConstTensor tensor) const {
  if (!is_float(tensor.dtype))
    refuse(name, fmt::format("has dtype {}, which is not a floating-point type", name_of(tensor.dtype)));
}

void AdapterDeltas::read_tensor(const std::string& name, ConstTensor tensor) {
  const std::string plain = without_adapter_name(name);
  const bool is_second = plain != name && reader_.contains(plain);
  if (!plain.starts_with(kPeftPrefix) || is_second) return ignored_.push_back(name);
  const std::string inner = plain.substr(kPeftPrefix.size());
  if (inner.ends_with(kBaseLayer)) return;
  if (const auto weight = read_factor(inner, tensor)) {
    require_float(name, tensor);
    return tensors_[*weight].push_back(name);
  }
  const std::string module = module_of_weight(inner);
  const bool tied_head = config_.ensure_weight_tying && module == kHeadName && is_saved(config_, kEmbeddingName);
  if (!is_saved(config_, module) && !tied_head) {
    const auto around = saved_around(config_, module);
    if (around && !module.ends_with(".original_module"))
      fail(ErrorKind::input, {.cause = fmt::format("modules_to_save: \"{}\" is not a layer of the model", *around),
                              .place = fmt::format("{}: {}", reader_.path().string(), name),
                              .remedy = "use PEFT's merge_and_unload; here, it must name the layers themselves"});
    return ignored_.push_back(name);
  }
  require_float(name, tensor);
  tensors_[inner].push_back(name);
  whole_[inner] = tensor;
  shapes_[inner] = tensor.shape;
}

// Reads a factor or magnitude, and returns the name of its weight; empty for other tensors.
std::optional<std::string> AdapterDeltas::read_factor(const std::string& inner, ConstTensor tensor) {
  const auto weight_of = [&](std::string_view end) { return inner.substr(0, inner.size() - end.size()) + ".weight"; };
  for (const FactorNames& names : {kLinearFactors, kEmbeddingFactors}) {
    const bool embedding = names.a == kEmbeddingFactors.a;
    for (const bool first : {true, false}) {
      const std::string_view end = first ? names.a : names.b;
      if (!inner.ends_with(end)) continue;
      AdapterFactors& pair = pairs_[weight_of(end)];
      (first ? pair.a : pair.b) = tensor;
      pair.embedding = embedding;
      return weight_of(end);
    }
  }
  if (!config_.dora || !inner.ends_with(kMagnitude)) return {};
  pairs_[weight_of(kMagnitude)].magnitude = tensor;
  return weight_of(kMagnitude);
}

void AdapterDeltas::check_pair(const std::string& weight, AdapterFactors& pair) {
  const std::string module = module_of_weight(weight);
  if (!pair.a || !pair.b) refuse(module, fmt::format("has no {}", pair.a ? "lora_B" : "lora_A"));
  const std::int64_t ranks = pair.expert ? pair.rank() * pair.expert->experts : pair.a.shape[0];
  if (pair.a.shape.rank != 2 || pair.b.shape.rank != 2 || ranks != pair.b.shape[1])
    refuse(module, fmt::format("has lora_A {} and lora_B {}, which do not match", to_string(pair.a.shape),
                               to_string(pair.b.shape)));
  const std::string parameter = parameter_of(weight);
  const std::string named = names_parameter(config_, parameter) ? parameter : module;
  pair.scale = config_.scale_of(named);
  if (const std::int64_t rank = config_.rank_of(named); pair.a.shape[0] != rank)
    refuse(module, fmt::format("has rank {}, but adapter_config.json says {}", pair.a.shape[0], rank));
  const std::int64_t in = pair.a.shape[1], out = pair.out();
  if (config_.dora && (pair.embedding || !(pair.magnitude.shape == Shape{out})))
    refuse(module,
           fmt::format("has no lora_magnitude_vector of {} magnitudes, but adapter_config.json sets use_dora", out));
  shapes_[weight] = pair.embedding ? Shape{in, out} : Shape{out, in};
}

bool AdapterDeltas::targets(const std::string& weight) const {
  return names_weight(renamed(weight, experts_, {}));
}

bool AdapterDeltas::names_weight(const std::string& weight) const {
  const std::string module = module_of_weight(weight), parameter = parameter_of(weight);
  if (is_saved(config_, module)) return true;
  if (parameter != weight || weight.ends_with(kRouterWeight)) return names_parameter(config_, parameter);
  const bool adaptable = is_linear_layer(module) || module == kEmbeddingName || module == kHeadName;
  return weight.ends_with(".weight") && adaptable && is_target(config_, module);
}

void AdapterDeltas::add_to(Ctx& ctx, const std::string& weight, Tensor w, double factor) const {
  if (const auto found = whole_.find(weight); found != whole_.end()) {
    const Matrix saved = in_f32(ctx, found->second);
    const auto f = static_cast<float>(factor);
    std::transform(saved.values.begin(), saved.values.end(), w.as<float>(), w.as<float>(),
                   [f](float s, float sum) { return sum + f * s; });
    return;
  }
  const auto found = pairs_.find(weight);
  if (found == pairs_.end()) return;
  const AdapterFactors& f = found->second;
  const bool embedding = f.embedding;
  const Matrix a = in_f32(ctx, f.a), b = f.expert ? expert_b(f) : in_f32(ctx, f.b);
  const auto transpose = embedding ? ops::Transpose::yes : ops::Transpose::no;
  ops::gemm(ctx, {.c = accumulate(w),
                  .a = embedding ? a.view() : b.view(),
                  .b = embedding ? b.view() : a.view(),
                  .transpose_a = transpose,
                  .transpose_b = transpose,
                  .alpha = factor * f.scale});
  if (f.magnitude) set_row_norms(w, in_f32(ctx, f.magnitude));
}

void require_effect(const AdapterDeltas& deltas) {
  if (!deltas.shapes().empty()) return;
  fail(ErrorKind::input,
       {.cause = "the adapter has no tensors for any weight of the model that its adapter_config.json names",
        .place = deltas.folder().string(),
        .remedy = "use an adapter that was trained on this model"});
}

}  // namespace qtrain
