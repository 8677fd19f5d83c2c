#include "app/init/drafting.h"

#include <fmt/format.h>

#include <utility>

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

}  // namespace

Drafting::Drafting(DraftRequest request, Choices::Confirm confirm, Log& log)
    : request_(std::move(request)),
      choices_(request_.given, std::move(confirm)),
      log_(log),
      pool_(threads_of(request_.given)) {}

void Drafting::run() {
  look_at_model();
  look_at_data();
  measure();
  choose_method();
  choose_loss();
  choose_course();
  choose_batches();
  choose_events();
  choose_samples();
  choose_output();
}

ResolvedConfig Drafting::config(const Json& more) const {
  Json document = choices_.document();
  document.update(more);
  return parse_config(dump_json(document), "init", request_.given);
}

std::string Drafting::head() const {
  return fmt::format(
      "Written by qtrain init: {} on {} of {}. Keys that are not here have the values of the preset (qtrain config "
      "shows all). Any key can be changed here or on the command line.",
      preset_of(method_), counted(rows_.size(), "row"), look_.name);
}

}  // namespace qtrain::init
