#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "app/init/drafting.h"
#include "core/plural.h"
#include "train/setup/dataset_setup.h"

/// How `qtrain init` chooses what is learned, in which steps, and what happens on the way.
namespace qtrain::init {
namespace {

constexpr double kEvents = 0.2;  // evaluations and checkpoints, as a share of all updates

template <class T>
T number_in(const Json& value, T otherwise) {
  return value.is_number() ? value.get<T>() : otherwise;
}

}  // namespace

bool Drafting::evaluates() const {
  const Config c = config().value;
  return !c.data.eval_dataset_name.empty() || c.data.eval_split > 0;
}

void Drafting::choose_loss() {
  const Json document = choices_.document();
  if (method_ == Method::pretrain)
    choices_.add({.key = "packing",
                  .value = true,
                  .reason = "texts are joined, each with an end token, and cut every max_length tokens"});
  else if (look_.shape == RowShape::chat && !document.contains("assistant_only_loss"))
    choices_.add({.key = "assistant_only_loss",
                  .value = true,
                  .reason = "what the assistant says is learned; what others say is only read"});
  else if (look_.shape == RowShape::chat_pair || look_.shape == RowShape::text_pair)
    choices_.add(
        {.key = "completion_only_loss", .value = true, .reason = "answers are learned; questions are only read"});
  const double cut = 100 * truncated_share(measured_, length_);
  const std::string lengths =
      method_ == Method::pretrain
          ? fmt::format("about {:.0f} tokens in all", measured_.mean() * static_cast<double>(train_rows_))
          : fmt::format("99 % of {} have at most {}, the longest has {}; it truncates {}",
                        counted(measured_.source_rows, "row"), counted(measured_.percentile(0.99), "token"),
                        measured_.max(), cut == 0 ? "none" : fmt::format("{:.1f} %", cut));
  length_ = number_in(choices_.ask({.key = "max_length", .value = length_, .reason = lengths}), length_);
}

void Drafting::choose_course() {
  if (method_ == Method::pretrain)  // packed rows
    train_rows_ =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(measured_.mean() * static_cast<double>(train_rows_)) /
                                      std::max<std::int64_t>(length_, 1));
  epochs_ = epochs_over(train_rows_);
  const std::string rows = counted(train_rows_, method_ == Method::pretrain ? "packed row" : "row");
  epochs_ = std::max<std::int64_t>(
      1, number_in(choices_.ask({.key = "num_train_epochs",
                                 .value = epochs_,
                                 .reason = fmt::format("passes over {}: the fewer rows, the more passes", rows)}),
                   epochs_));
  choices_.ask({.key = "learning_rate",
                .value = learning_rate({.method = method_, .hidden_size = hidden_size_, .random_init = random_init_}),
                .reason = fmt::format(
                    "for {} and a model of width {}: the narrower, the higher",
                    method_ == Method::lora || method_ == Method::qlora ? "an adapter" : "all weights", hidden_size_)});
}

Json Drafting::batches_of(std::int64_t rows) const {
  return {{"per_device_train_batch_size", rows},
          {"per_device_eval_batch_size", rows},
          {"gradient_accumulation_steps", per_update_ / rows}};
}

// A larger micro-batch is only worth having as long as nothing has to be recomputed for it.
std::int64_t Drafting::fitting_micro_batch(std::int64_t most) const {
  for (const Json& recompute : {Json(false), Json("auto")})
    for (std::int64_t rows = most; rows > 0; rows /= 2) {
      Json more = batches_of(rows);
      more["gradient_checkpointing"] = recompute;
      const std::optional<AnsweredPlan> planned = plan(more);
      if (planned && has_room(*planned)) return rows;
    }
  return 1;
}

void Drafting::choose_batches() {
  per_update_ = rows_per_update(train_rows_, epochs_);
  const double mean = method_ == Method::pretrain ? static_cast<double>(length_)
                                                  : std::min(measured_.mean(), static_cast<double>(length_));
  const Json chosen = batches_of(fitting_micro_batch(busy_micro_batch(per_update_, mean, compute_.device.kind)));
  choices_.add({.key = "per_device_train_batch_size",
                .value = chosen.at("per_device_train_batch_size"),
                .reason = fmt::format("{} per update, so that there are enough updates to learn in",
                                      counted(per_update_, "row"))});
  choices_.add({.key = "gradient_accumulation_steps", .value = chosen.at("gradient_accumulation_steps"), .reason = ""});
  choices_.add({.key = "per_device_eval_batch_size", .value = chosen.at("per_device_eval_batch_size"), .reason = ""});
  const std::optional<AnsweredPlan> planned = plan(Json::object());
  const TrainingSection t = config().value.training;
  updates_ = t.max_steps > 0
                 ? t.max_steps
                 : updates_of(train_rows_, epochs_, t.per_device_train_batch_size * t.gradient_accumulation_steps);
  if (planned && speed_)
    seconds_ = planned->time.map([&](const StepTime& step) { return static_cast<double>(updates_) * step.seconds(); });
  choices_.add({.key = "gradient_checkpointing",
                .value = "auto",
                .reason = fmt::format("recompute as little as the memory allows; here: {}",
                                      planned ? planned->policy.name() : "unknown")});
}

void Drafting::choose_events() {
  constexpr std::int64_t kFew = 200;
  if (updates_ < kFew)
    choices_.add({.key = "warmup_ratio",
                  .value = 0.05,
                  .reason = fmt::format("there are only {}", counted(updates_, "update"))});
  choices_.add({.key = "logging_steps",
                .value = log_interval(updates_),
                .reason = fmt::format("of {}", counted(updates_, "update"))});
  Json evaluation = "no";
  if (evaluates()) {
    evaluation = choices_.add(
        {.key = "eval_strategy", .value = "steps", .reason = "five times a run; the best checkpoint is the result"});
    choices_.add({.key = "eval_steps", .value = kEvents, .reason = ""});
  }
  const Json saves =
      choices_.add({.key = "save_strategy",
                    .value = "steps",
                    .reason = evaluation == "steps" ? "" : "five checkpoints a run, of which the newest stays"});
  choices_.add({.key = "save_steps", .value = kEvents, .reason = ""});
  choices_.add({.key = "save_total_limit", .value = 1, .reason = ""});
  if (evaluation == "steps" && saves == "steps")
    choices_.add({.key = "load_best_model_at_end", .value = true, .reason = ""});
}

void Drafting::choose_samples() {
  constexpr std::size_t kPrompts = 2;
  if (!evaluates() || learns_texts() || look_.shape == RowShape::tokens) return;
  const Config c = config().value;
  const ShapeRules rules{.text_field = c.data.dataset_text_field, .chat_template = text_.chat_template.has_value()};
  const std::vector<std::string> questions = short_questions(data_rows(c, Split::evaluation), rules, kPrompts);
  if (questions.empty()) return;
  choices_.add({.key = "sample_prompts",
                .value = questions,
                .reason = "questions of the held-out rows; each evaluation answers them, and the report shows how"});
}

void Drafting::choose_output() {
  std::string folder = "output";
  std::error_code ignored;
  for (int n = 2; std::filesystem::exists(folder, ignored); ++n) folder = fmt::format("output-{}", n);
  choices_.ask({.key = "output_dir", .value = folder, .reason = "for the result, checkpoints and the report"});
}

}  // namespace qtrain::init
