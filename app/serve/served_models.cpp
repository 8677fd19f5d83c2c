#include "app/serve/served_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/os/paths.h"
#include "hub/cache.h"
#include "text/tokenizer/unicode.h"

namespace qtrain::serve {
namespace {

namespace fs = std::filesystem;

// The last name in a path: "a" for "runs/a/". For a snapshot in the cache of the hub, its name there.
std::string name_of_folder(const std::string& path) {
  const fs::path full = absolute_path(path);
  if (auto repo = repo_of_snapshot(full)) return *repo;
  const std::string last = full.filename().string();
  return last.empty() ? full.parent_path().filename().string() : last;
}

// Splits "NAME=DIR". A path that exists is not split, even if it contains a "=".
std::pair<std::string, std::string> named_folder(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || path_exists(text)) return {name_of_folder(text), text};
  return {text.substr(0, at), text.substr(at + 1)};
}

std::vector<PlannedPass> passes(const BatchLimits& limits) {
  return {{Pass::decode, ContinuousBatch::largest(limits)}};
}

// An upper bound: a token is spelled with at least as many bytes as its text has.
std::size_t longest_token(const Tokenizer& tokenizer) {
  std::size_t longest = 1;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) longest = std::max(longest, tokenizer.token(id).size());
  return longest;
}

bool writes_tool_calls(const TextFolder& text) {
  if (!text.chat_template) return false;
  const auto sources = text.chat_template->sources();
  return std::any_of(sources.begin(), sources.end(),
                     [](const auto& source) { return source.second.find("<tool_call>") != std::string::npos; });
}

}  // namespace

ServedModels::ServedModels(Ctx& ctx, const Request& request) {
  const auto add = [&](const std::string& given, const AnswerModelRequest& what) {
    const std::string name = utf8_lossy(given);  // replies are JSON, which must be UTF-8
    if (find(name))
      fail(ErrorKind::usage, {.cause = fmt::format("two models are called \"{}\"", name),
                              .remedy = "give adapters names: --adapter NAME=DIR"});
    ServedModel& m = models_.emplace_back(ServedModel{.name = name, .answers = declare_answer_model(ctx, what)});
    m.token_bytes = longest_token(*m.answers.text.tokenizer);
    m.parses_tool_calls = writes_tool_calls(m.answers.text);
  };
  add(name_of_folder(request.base.model), request.base);
  for (const std::string& text : request.adapters) {
    const auto [name, folder] = named_folder(text);
    AnswerModelRequest adapted = request.base;
    adapted.adapter = folder;
    add(name, adapted);
  }
}

std::size_t ServedModels::bytes(const BatchLimits& limits) const {
  std::size_t sum = models_[0].answers.setup.model->params().weights().values().planned();
  for (const ServedModel& m : models_) {
    const Transformer& model = *m.answers.setup.model;
    const AdapterParams& adapter = model.params().adapter();
    sum += adapter.store().values().planned() + adapter.norms().values().planned() +
           Runner::measure(model, {.passes = passes(limits)}).activations.total;
  }
  return sum;
}

void ServedModels::load(Ctx& ctx, const BatchLimits& limits, Log& log) {
  warn_of_unused_settings(models_.front().answers, log);  // adapters use the same model folder
  const Runner* base = nullptr;
  for (ServedModel& m : models_) {
    const ModelSetup& setup = m.answers.setup;
    m.runner = std::make_unique<Runner>(*setup.model, Execution{.passes = passes(limits), .base = base});
    load_weights(ctx, *m.runner, {.setup = setup, .seed = m.answers.seed, .base_is_there = base != nullptr}, log);
    if (!base) base = m.runner.get();
  }
}

std::optional<std::size_t> ServedModels::find(std::string_view name) const {
  const auto at = std::ranges::find_if(models_, [&](const ServedModel& m) { return m.name == name; });
  if (at == models_.end()) return {};
  return static_cast<std::size_t>(at - models_.begin());
}

std::vector<std::string> ServedModels::names() const {
  std::vector<std::string> out;
  for (const ServedModel& m : models_) out.push_back(m.name);
  return out;
}

std::vector<Runner*> ServedModels::runners() const {
  std::vector<Runner*> out;
  for (const ServedModel& m : models_) out.push_back(m.runner.get());
  return out;
}

}  // namespace qtrain::serve
