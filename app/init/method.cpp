#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/init/drafting.h"

/// How `qtrain init` chooses the method.
namespace qtrain::init {
namespace {

constexpr double kRoomShare = 0.9;  // of the memory, which others use too

std::string gib_text(double bytes) {
  return bytes < (1 << 30) ? fmt::format("{:.0f} MiB", bytes / kMib) : fmt::format("{:.1f} GiB", bytes / (1 << 30));
}

std::string why(Method method) {
  switch (method) {
    case Method::lora: return "LoRA: an adapter on the frozen model";
    case Method::qlora: return "QLoRA: an adapter on the model in 4 bits, because in its own type it does not fit";
    case Method::full: return "all weights";
    case Method::pretrain: return "all weights on all tokens, as in pre-training";
  }
  return {};
}

Method method_named(std::string_view preset) {
  for (const Method method : {Method::lora, Method::qlora, Method::full, Method::pretrain})
    if (preset_of(method) == preset) return method;
  return Method::lora;
}

}  // namespace

std::int64_t Drafting::length_of(Method method) const {
  const std::int64_t most = positions_ > 0 ? positions_ : 1 << 20;
  if (method != Method::pretrain) return row_length(measured_, most);
  const std::int64_t usual = compute_.device.kind == DeviceKind::cuda ? 1024 : 512;
  return packed_length(measured_.mean() * static_cast<double>(train_rows_), std::min(most, usual));
}

std::optional<AnsweredPlan> Drafting::plan(const Json& more) const {
  const ResolvedConfig c = config(more);
  const TrainingSection& t = c.value.training;
  const std::int64_t longest = c.value.data.max_length.value_or(positions_);
  const double tokens = static_cast<double>(std::max<std::int64_t>(measured_.tokens, 1));
  const double mean =
      c.value.data.packing ? static_cast<double>(longest) : std::min(measured_.mean(), static_cast<double>(longest));
  const StepWork step{
      .mix = {.context = measured_.mean(), .target_share = static_cast<double>(measured_.target_tokens) / tokens},
      .micro_batch_tokens = mean * static_cast<double>(t.per_device_train_batch_size),
      .micro_batches = static_cast<double>(t.gradient_accumulation_steps)};
  const PlanQuestion question{.config = c.value,
                              .compute = compute_,
                              .target = target_,
                              .work = [&](const Config& config) { return longest_workload(config, longest); },
                              .step_work = [&](const Config&) { return step; },
                              .speed = speed_.value_or(alike(DeviceSpeed{.flops = 1, .bandwidth = 1, .loading = {}})),
                              .supported = [](const Config&) { return true; }};
  try {
    return plan_of(question, c.value);
  } catch (const Error& e) {  // the model cannot be trained in this way
    if (e.kind() == ErrorKind::stopped) throw;
    return {};
  }
}

bool Drafting::has_room(const AnsweredPlan& plan) const {
  return target_.memory == 0 ||
         static_cast<double>(plan.memory.total()) <= kRoomShare * static_cast<double>(target_.memory);
}

/// The smallest run of a method.
Json Drafting::tried(Method method, std::int64_t length) const {
  Json keys{{"preset", preset_of(method)},
            {"max_length", length},
            {"per_device_train_batch_size", 1},
            {"per_device_eval_batch_size", 1},
            {"gradient_accumulation_steps", 1}};
  if (random_init_) keys["random_init"] = true;
  return keys;
}

void Drafting::choose_method() {
  constexpr std::int64_t kShortest = 256;
  std::vector<Method> methods{Method::lora, Method::qlora};
  if (learns_texts()) methods = {Method::pretrain, Method::lora, Method::qlora};
  if (random_init_) methods = {Method::pretrain};
  std::optional<AnsweredPlan> found, smallest;
  for (std::int64_t cut = 1; !found && (cut == 1 || length_ >= kShortest); cut *= 2)
    for (const Method method : methods) {
      length_ = std::max<std::int64_t>(length_of(method) / cut, 1);
      std::optional<AnsweredPlan> planned = plan(tried(method, length_));
      if (!planned) continue;
      method_ = method;
      if (has_room(*planned)) {
        found = std::move(planned);
        break;
      }
      if (!smallest || planned->memory.total() < smallest->memory.total()) smallest = std::move(planned);
    }
  if (!found && !choices_.is_given("preset"))
    fail(ErrorKind::memory,
         {.cause =
              fmt::format("no way of training {} fits: the smallest needs {}, and {} of memory can be used",
                          request_.model, smallest ? gib_text(static_cast<double>(smallest->memory.total())) : "more",
                          gib_text(kRoomShare * static_cast<double>(target_.memory))),
          .remedy = "use a smaller model, or a machine with more memory (qtrain estimate --cards compares GPUs)"});
  const Json preset = choices_.ask({.key = "preset",
                                    .value = preset_of(method_),
                                    .reason = found ? fmt::format("{}; it fits: {} of {}", why(method_),
                                                                  gib_text(static_cast<double>(found->memory.total())),
                                                                  gib_text(static_cast<double>(target_.memory)))
                                                    : ""});
  if (preset.is_string() && method_named(preset.get<std::string>()) != method_) {
    method_ = method_named(preset.get<std::string>());
    length_ = length_of(method_);
  }
  if (!found) warnings_.push_back("the smallest run of this preset does not fit the memory of this machine");
  if (random_init_)
    choices_.add({.key = "random_init", .value = true, .reason = "the folder has no weights to start from"});
}

}  // namespace qtrain::init
