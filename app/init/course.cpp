#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "app/init/drafting.h"
#include "app/init/events.h"
#include "core/plural.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/step_plan.h"

/// How `qtrain init` chooses what is learned, in which steps, and what happens on the way.
namespace qtrain::init {
namespace {

template <class T>
T number_in(const Json& value, T otherwise) {
  return value.is_number() ? value.get<T>() : otherwise;
}

}  // namespace

bool Drafting::evaluates() const {
  const Config c = config().value;
  return !c.data.eval_dataset_name.empty() || c.data.eval_split > 0;
}

/// Which tokens are learned.
void Drafting::choose_learned() {
  if (course_.method == Method::pretrain) {
    const bool packs = !gives("max_length", nullptr);
    choices_.add({.key = "packing",
                  .value = packs,
                  .reason = packs ? "texts are joined, each with an end token, and cut every max_length tokens"
                                  : "without a max_length, texts cannot be joined and cut"});
    return;
  }
  if (choices_.is_given("response_template")) return;  // it says where answers are
  if (look_.shape == RowShape::chat && !choices_.document().contains("assistant_only_loss"))
    choices_.add({.key = "assistant_only_loss",
                  .value = true,
                  .reason = "what the assistant says is learned; what others say is only read"});
  if (look_.shape != RowShape::chat_pair && look_.shape != RowShape::text_pair) return;
  choices_.add(
      {.key = "completion_only_loss", .value = true, .reason = "answers are learned; questions are only read"});
  if (gives("completion_only_loss", false))
    choices_.replace({.key = "assistant_only_loss", .value = false, .reason = "so that questions are learned, too"});
}

void Drafting::choose_loss() {
  choose_learned();
  const double cut = 100 * truncated_share(measured_, course_.length);
  const std::string lengths =
      course_.method == Method::pretrain
          ? fmt::format("about {:.0f} tokens in all", measured_.mean() * static_cast<double>(course_.train_rows))
          : fmt::format("99 % of {} have at most {}, the longest has {}; it truncates {}",
                        counted(measured_.source_rows, "row"), counted(measured_.percentile(0.99), "token"),
                        measured_.max(), cut == 0 ? "none" : fmt::format("{:.1f} %", cut));
  const Json length = ask({.key = "max_length", .value = course_.length, .reason = lengths},
                          [this](const ResolvedConfig& with) { require_rows(with); });
  course_.length = number_in(length, course_.length);
  require_rows(config());
}

void Drafting::choose_course() {
  course_.train_rows = std::min(course_.train_rows, config().value.data.max_samples.value_or(course_.train_rows));
  const bool packs = course_.method == Method::pretrain && config().value.data.packing;
  if (packs)
    course_.train_rows = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(measured_.mean() * static_cast<double>(course_.train_rows)) /
               std::max<std::int64_t>(course_.length, 1));
  course_.epochs = epochs_over(course_.train_rows);
  const std::string rows = counted(course_.train_rows, packs ? "packed row" : "row");
  constexpr double kMaxEpochs = 1e6;  // so that products stay numbers
  const bool counts_steps = number_in<std::int64_t>(choices_.given("max_steps"), 0) > 0;  // epochs have no effect
  if (!counts_steps || choices_.is_given("num_train_epochs")) {
    const Json epochs = ask({.key = "num_train_epochs",
                             .value = course_.epochs,
                             .reason = fmt::format("passes over {}: the fewer rows, the more passes", rows)});
    course_.epochs =
        static_cast<std::int64_t>(std::clamp(number_in(epochs, static_cast<double>(course_.epochs)), 1.0, kMaxEpochs));
  }
  ask({.key = "learning_rate",
       .value = learning_rate({.method = course_.method, .hidden_size = hidden_size_, .random_init = random_init_}),
       .reason =
           fmt::format("for {} and a model of width {}: the narrower, the higher",
                       course_.method == Method::lora || course_.method == Method::qlora ? "an adapter" : "all weights",
                       hidden_size_)});
}

Json Drafting::batches_of(std::int64_t rows) const {
  return {{"per_device_train_batch_size", rows},
          {"per_device_eval_batch_size", rows},
          {"gradient_accumulation_steps", course_.per_update / rows}};
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

/// The micro-batch and how many of them make an update: a given one of the two decides the other.
Json Drafting::chosen_batches(std::int64_t ranks) {
  const std::int64_t micro = number_in<std::int64_t>(choices_.given("per_device_train_batch_size"), 0),
                     steps = number_in<std::int64_t>(choices_.given("gradient_accumulation_steps"), 0);
  course_.per_update =
      std::max({rows_per_update(course_.train_rows, course_.epochs) / ranks, std::int64_t{1}, micro, steps});
  if (micro > 0) return batches_of(micro);
  const double mean = course_.method == Method::pretrain
                          ? static_cast<double>(course_.length)
                          : std::min(measured_.mean(), static_cast<double>(course_.length));
  const std::int64_t busy = busy_micro_batch(course_.per_update, mean, compute_.device.kind);
  return batches_of(fitting_micro_batch(steps > 0 ? std::min(busy, course_.per_update / steps) : busy));
}

void Drafting::choose_batches() {
  const std::int64_t ranks = config().value.run.data_ranks();
  const Json chosen = chosen_batches(ranks);
  const std::int64_t all = ranks * chosen.at("per_device_train_batch_size").get<std::int64_t>() *
                           number_in(choices_.given("gradient_accumulation_steps"),
                                     chosen.at("gradient_accumulation_steps").get<std::int64_t>());
  choices_.add(
      {.key = "per_device_train_batch_size",
       .value = chosen.at("per_device_train_batch_size"),
       .reason = fmt::format("{} per update, so that there are enough updates to learn in", counted(all, "row"))});
  choices_.add({.key = "gradient_accumulation_steps", .value = chosen.at("gradient_accumulation_steps"), .reason = ""});
  choices_.add({.key = "per_device_eval_batch_size", .value = chosen.at("per_device_eval_batch_size"), .reason = ""});
  const std::optional<AnsweredPlan> planned = plan(Json::object());
  const TrainingSection t = config().value.training;
  const std::int64_t batch = ranks * t.per_device_train_batch_size;
  course_.updates = make_step_plan(t, (course_.train_rows + batch - 1) / batch, static_cast<int>(ranks)).max_steps;
  if (planned && speed_)
    course_.seconds =
        planned->time.map([&](const StepTime& step) { return static_cast<double>(course_.updates) * step.seconds(); });
  choices_.add({.key = "gradient_checkpointing",
                .value = "auto",
                .reason = fmt::format("recompute as little as the memory allows; here: {}",
                                      planned ? planned->policy.name() : "unknown")});
}

void Drafting::choose_events() {
  constexpr std::int64_t kFew = 200;
  if (course_.updates < kFew && number_in<std::int64_t>(choices_.given("warmup_steps"), 0) == 0)
    choices_.add({.key = "warmup_ratio",
                  .value = 0.05,
                  .reason = fmt::format("there are only {}", counted(course_.updates, "update"))});
  choices_.add({.key = "logging_steps",
                .value = log_interval(course_.updates),
                .reason = fmt::format("of {}", counted(course_.updates, "update"))});
  choose_intervals(choices_, {.evaluates = evaluates(), .updates = course_.updates});
  course_.chose_events = true;
}

void Drafting::choose_samples() {
  constexpr std::size_t kPrompts = 2;
  if (!evaluates() || gives("eval_strategy", "no") || learns_texts() || look_.shape == RowShape::tokens) return;
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
  ask({.key = "output_dir", .value = folder, .reason = "for the result, checkpoints and the report"},
      request_.require_usable);
}

}  // namespace qtrain::init
