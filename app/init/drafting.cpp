#include "app/init/drafting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "config/check.h"
#include "config/keys.h"
#include "core/plural.h"

namespace qtrain::init {
namespace {

/// The number of threads that the command line gives; 0: one per processor.
int threads_of(const Overrides& given) {
  int threads = 0;
  for (const auto& [key, value] : given)
    if (key == "threads") threads = static_cast<int>(parse_config("{}", "init", {{key, value}}).value.run.threads);
  return threads;
}

/// Keys that only fit each other, and the evaluation, once all of them are chosen.
bool is_event_key(std::string_view key) {
  constexpr std::array<std::string_view, 9> kKeys{
      "eval_strategy",         "eval_steps",        "eval_delay",
      "save_strategy",         "save_steps",        "load_best_model_at_end",
      "metric_for_best_model", "greater_is_better", "sample_prompts"};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

}  // namespace

Drafting::Drafting(DraftRequest request, Choices::Confirm confirm, Log& log)
    : request_(std::move(request)),
      choices_(request_.given, std::move(confirm)),
      log_(log),
      pool_(threads_of(request_.given)) {}

void Drafting::look() {
  look_at_model();
  look_at_data();
  measure();
}

void Drafting::choose() {
  choose_method();
  choose_loss();
  choose_course();
  choose_batches();
  choose_events();
  choose_samples();
  choose_output();
  const ResolvedConfig all = config();
  require_supported(all);
  if (request_.require_usable) request_.require_usable(all);
}

void Drafting::rehearse() {
  const Course before = course_;
  Choices asked = std::exchange(choices_, choices_.unconfirmed());
  choose();
  choices_ = std::move(asked);
  course_ = before;
}

/// Asks about a choice, and again if the value contradicts others or `require` throws for the config with it.
Json Drafting::ask(Choice choice, const std::function<void(const ResolvedConfig&)>& require) {
  choice.objection = [this, key = choice.key, require](const Json& value) -> std::string {
    try {
      const ResolvedConfig with = config({{key, value}});
      require_supported(with);
      if (require) require(with);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::stopped || e.kind() == ErrorKind::internal) throw;
      return e.what();
    }
    return {};
  };
  return choices_.ask(std::move(choice));
}

ResolvedConfig Drafting::config(const Json& more) const {
  Json document = choices_.document();
  document.update(more);
  if (gives("max_length", nullptr) && !document.contains("packing")) document["packing"] = false;  // needs a length
  Overrides given = request_.given;
  if (!course_.chose_events)
    std::erase_if(given, [](const auto& entry) { return is_event_key(canonical_key(entry.first)); });
  return parse_config(dump_json(document), "init", given);
}

std::string Drafting::head() const {
  return fmt::format(
      "Written by qtrain init: {} on {} of {}. Keys that are not here have the values of the preset (qtrain config "
      "shows all). Any key can be changed here or on the command line.",
      preset_of(course_.method), counted(rows_.size(), "row"), look_.name);
}

}  // namespace qtrain::init
