#include "model/recompute.h"

#include <algorithm>
#include <charconv>

namespace qtrain {
namespace {

constexpr std::string_view kNames[] = {"none", "selective", "block"};
constexpr std::string_view kBlocks = "blocks:";

}  // namespace

std::optional<RecomputePolicy> RecomputePolicy::parse(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i)
    if (kNames[i] == name) return RecomputePolicy(static_cast<Kind>(i));
  if (!name.starts_with(kBlocks)) return {};
  const std::string_view number = name.substr(kBlocks.size());
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
  if (error != std::errc() || end != number.data() + number.size() || n < 2) return {};
  return RecomputePolicy(Kind::block, n);
}

RecomputePolicy RecomputePolicy::named(std::string_view name) {
  const auto policy = parse(name);
  if (!policy)
    fail(ErrorKind::usage, {.cause = "unknown recompute policy \"" + std::string(name) + "\"",
                            .remedy = "use none, selective, block or blocks:N (N >= 2)"});
  return *policy;
}

std::vector<RecomputePolicy> RecomputePolicy::choices(std::int64_t layers) {
  std::vector<RecomputePolicy> all;
  for (std::size_t i = 0; i < std::size(kNames); ++i) all.emplace_back(static_cast<Kind>(i));
  // layers / N + N inputs are saved, so groups larger than the square root of the number of layers save no memory.
  for (std::int64_t n = 2; n * n <= 2 * layers; n *= 2) all.emplace_back(Kind::block, n);
  return all;
}

std::string RecomputePolicy::name() const {
  if (group_ > 1) return std::string(kBlocks) + std::to_string(group_);
  return std::string(kNames[static_cast<std::size_t>(kind_)]);
}

TensorSet RecomputePolicy::recomputed(const Layer& layer) const {
  if (kind_ == Kind::block) return layer.all() - TensorSet{layer.input, layer.output};
  TensorSet set;
  if (kind_ == Kind::selective)
    for (std::size_t t = 0; t < layer.tensors.size(); ++t)
      if (layer.tensors[t].selective == Selective::recompute) set.add(static_cast<TensorId>(t));
  return set;
}

RecomputePlan plan_recompute(const Layer& layer, TensorSet drop, const LayerWeights& weights) {
  const TensorSet input{layer.input};
  TensorSet needed;
  for (const auto& stage : layer.stages) {
    needed = needed | stage->adjoint_reads;
    if (stage->trains(weights)) needed = needed | stage->weight_reads;
  }
  RecomputePlan plan;
  TensorSet missing = (needed & drop) - input;
  for (std::size_t i = layer.stages.size(); i-- > 0;) {
    const Stage& stage = *layer.stages[i];
    if ((stage.writes & missing).empty()) continue;
    plan.rerun.push_back(static_cast<int>(i));
    needed = needed | stage.reads;
    missing = missing | ((stage.reads & drop) - input);
  }
  std::reverse(plan.rerun.begin(), plan.rerun.end());
  plan.saved = (needed - drop) | input;
  plan.unread = layer.all() - missing;
  return plan;
}

std::optional<TensorId> idle_gradient(const Layer& layer, std::size_t stage) {
  TensorSet used = layer.stages[stage]->reads | layer.stages[stage]->writes | layer.residual | TensorSet{layer.output};
  // Adjoints run from the last stage to the first: those of later stages have begun the gradients of what these read,
  // and ended those of what these wrote.
  TensorSet begun, ended;
  for (std::size_t i = stage + 1; i < layer.stages.size(); ++i) {
    begun = begun | layer.stages[i]->reads;
    ended = ended | layer.stages[i]->writes;
  }
  used = used | (begun - ended);
  std::optional<TensorId> idle;
  const auto size = [&](TensorId t) { return layer.spec(t).shape_for(1).numel(); };
  for (std::size_t t = 0; t < layer.tensors.size(); ++t) {
    const auto id = static_cast<TensorId>(t);
    const TensorSpec& spec = layer.spec(id);
    if (spec.gradient == HasGradient::no || spec.precision != Precision::activation || used.has(id)) continue;
    if (!idle || size(id) > size(*idle)) idle = id;
  }
  return idle;
}

void run_backward(const Layer& layer, const RecomputePlan& plan, LayerRun& run) {
  run.unread = plan.unread;
  for (const int i : plan.rerun) layer.stages[static_cast<std::size_t>(i)]->forward(run);
  for (std::size_t i = layer.stages.size(); i-- > 0;) {
    const std::optional<TensorId> idle = idle_gradient(layer, i);
    run.idle = idle ? run.gradient(*idle) : Tensor{};
    layer.stages[i]->backward(run);
  }
}

}  // namespace qtrain
