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
  return packed_length(measured_.mean() * static_cast<double>(course_.train_rows), std::min(most, usual));
}

bool Drafting::gives(std::string_view key, const Json& value) const {
  const Json given = choices_.given(std::string(key));
  return !given.is_discarded() && given == value;
}

/// The methods that the rows ask for and the words of the command line allow, the best one first.
std::vector<Method> Drafting::allowed_methods() const {
  std::vector<Method> methods{Method::lora, Method::qlora};
  if (learns_texts()) methods = {Method::pretrain, Method::lora, Method::qlora};
  if (random_init_) methods = {Method::pretrain};
  const Json preset = choices_.given("preset");
  if (preset.is_string()) return {method_named(preset.get<std::string>())};
  const bool whole = preset.is_null() ? !gives("use_peft", true) : gives("use_peft", false);
  if (whole) return {learns_texts() || random_init_ ? Method::pretrain : Method::full};
  if (gives("use_peft", true)) methods = {Method::lora, Method::qlora};
  if (gives("load_in_4bit", true)) return {Method::qlora};
  if (gives("load_in_8bit", true) || gives("load_in_fp8", true)) return {Method::lora};
  if (gives("load_in_4bit", false)) std::erase(methods, Method::qlora);
  return methods;
}

/// Tokens of the longest row of a batch: no row is longer than those that were measured if all were.
std::int64_t Drafting::longest_row(const DataSection& data) const {
  const std::int64_t most = data.max_length.value_or(positions_);
  if (data.packing || measured_.source_rows < rows_.size() || measured_.max() <= 0) return most;
  return most > 0 ? std::min<std::int64_t>(most, measured_.max()) : measured_.max();
}

std::optional<AnsweredPlan> Drafting::plan(const Json& more, std::optional<Error>* refused) const {
  try {
    return plan_with(config(more));
  } catch (const Error& e) {  // the model cannot be trained in this way, or given values contradict it
    if (e.kind() == ErrorKind::stopped) throw;
    if (refused && !*refused && e.kind() == ErrorKind::usage) *refused = e;
    return {};
  }
}

AnsweredPlan Drafting::plan_with(const ResolvedConfig& c) const {
  const TrainingSection& t = c.value.training;
  const std::int64_t longest = longest_row(c.value.data);
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
  return plan_of(question, c.value);
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

/// The first method that fits, with rows as long as possible; else course_.method is the last one that can be planned.
Drafting::Fit Drafting::find_method() {
  constexpr std::int64_t kShortest = 256;
  const std::vector<Method> methods = allowed_methods();
  course_.method = methods.front();
  Fit fit;
  for (std::int64_t cut = 1; cut == 1 || course_.length >= kShortest; cut *= 2)
    for (const Method method : methods) {
      course_.length = std::max<std::int64_t>(length_of(method) / cut, 1);
      const std::optional<AnsweredPlan> planned = plan(tried(method, course_.length), &fit.refused);
      if (!planned) continue;
      course_.method = method;
      fit.needed = std::min(fit.needed.value_or(planned->memory.total()), planned->memory.total());
      fit.fits = has_room(*planned);
      if (fit.fits) {
        fit.needed = planned->memory.total();
        return fit;
      }
    }
  return fit;
}

void Drafting::fail_without_room(const Fit& fit) const {
  if (!fit.needed && fit.refused) throw *fit.refused;
  std::string given;
  for (const char* key : {"per_device_train_batch_size", "max_length", "lora_r"})
    if (choices_.is_given(key)) given += fmt::format("{}{}", given.empty() ? " with the given " : ", ", key);
  fail(ErrorKind::memory,
       {.cause = fmt::format("no way of training {}{} fits: the smallest needs {}, and {} of memory can be used",
                             request_.model, given, fit.needed ? gib_text(static_cast<double>(*fit.needed)) : "more",
                             gib_text(kRoomShare * static_cast<double>(target_.memory))),
        .remedy = given.empty()
                      ? "use a smaller model, or a machine with more memory (qtrain estimate --cards compares GPUs)"
                      : "give smaller values, or use a smaller model or a machine with more memory"});
}

void Drafting::choose_method() {
  Fit fit = find_method();
  if (!fit.fits && !choices_.is_given("preset")) fail_without_room(fit);
  const Json preset = ask({.key = "preset",
                           .value = preset_of(course_.method),
                           .reason = fit.fits ? fmt::format("{}; it fits: {} of {}", why(course_.method),
                                                            gib_text(static_cast<double>(*fit.needed)),
                                                            gib_text(static_cast<double>(target_.memory)))
                                              : ""});
  if (preset.is_string() && method_named(preset.get<std::string>()) != course_.method) {
    course_.method = method_named(preset.get<std::string>());
    course_.length = length_of(course_.method);
    const std::optional<AnsweredPlan> planned = plan(tried(course_.method, course_.length));
    fit.fits = planned && has_room(*planned);
  }
  if (!fit.fits)
    course_.warnings.push_back(fmt::format("the smallest run with preset {} does not fit the memory of this machine",
                                           preset_of(course_.method)));
  if (random_init_)
    choices_.add({.key = "random_init", .value = true, .reason = "the folder has no weights to start from"});
}

}  // namespace qtrain::init
