#include "app/model_card.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/json.h"
#include "core/os/paths.h"
#include "core/version.h"
#include "hub/cache.h"
#include "hub/name.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// A JSON file that may be missing or damaged.
Json object_in(const fs::path& file) {
  try {
    if (Json json = is_plain_file(file) ? read_json(file) : Json(); json.is_object()) return json;
  } catch (const Error&) {  // the card then says less
  }
  return Json::object();
}

Json value_of_key(const Json& resolved, const std::string& key) {
  const Json values = resolved.value("values", Json::object());
  const auto it = values.find(key);
  return it != values.end() && it->is_object() ? it->value("value", Json()) : Json();
}

/// The data set of a path in the cache (datasets--OWNER--NAME/snapshots/...); empty for others.
std::string data_set_of_path(const fs::path& path) {
  constexpr std::string_view kBegin = "datasets--", kBetween = "--";
  for (auto part = path.begin(); part != path.end(); ++part) {
    if (!part->string().starts_with(kBegin) || std::next(part) == path.end() || *std::next(part) != "snapshots")
      continue;
    std::string repo = part->string().substr(kBegin.size());
    if (const std::size_t at = repo.find(kBetween); at != repo.npos) repo.replace(at, kBetween.size(), "/");
    if (is_repo_id(repo)) return repo;
  }
  return "";
}

/// What the files of a result say about it.
struct Facts {
  bool is_adapter = false, is_trained = false;
  std::string base = {};  ///< on the hub; empty: unknown
  std::vector<std::string> data = {};
  std::vector<std::pair<std::string, std::string>> numbers = {};
};

void add_number(Facts& facts, const char* name, const Json& value) {
  if (value.is_number_float()) facts.numbers.emplace_back(name, fmt::format("{:.4g}", value.get<double>()));
  if (value.is_number_integer()) facts.numbers.emplace_back(name, std::to_string(value.get<std::int64_t>()));
}

/// The last value of a number in trainer_state.json.
Json last_logged(const Json& state, const char* name) {
  const Json rows = state.value("log_history", Json::array());
  Json last;
  if (rows.is_array())
    for (const Json& row : rows)
      if (row.is_object() && row.contains(name)) last = row[name];
  return last;
}

Facts facts_of(const fs::path& folder) {
  const Json adapter = object_in(folder / "adapter_config.json");
  Json resolved = object_in(folder / "resolved_config.json");
  const fs::path own = absolute_path(folder).lexically_normal();
  const fs::path named = own.has_filename() ? own : own.parent_path();
  if (resolved.empty() && named.filename().string().starts_with("checkpoint-"))
    resolved = object_in(named.parent_path() / "resolved_config.json");
  Facts facts{.is_adapter = !adapter.empty()};
  const Json base = adapter.value("base_model_name_or_path", Json()),
             model = value_of_key(resolved, "model_name_or_path");
  if (model.is_string()) facts.base = repo_of_snapshot(model.get<std::string>()).value_or("");
  // A path such as models/base looks like a repository. Only those of a hub have a revision.
  const Json revision = adapter.value("revision", Json());
  if (facts.base.empty() && base.is_string() && revision.is_string() && !revision.get<std::string>().empty() &&
      is_repo_id(base.get<std::string>()))
    facts.base = base.get<std::string>();
  const Json data = value_of_key(resolved, "dataset_name");
  if (data.is_array())
    for (const Json& name : data)
      if (const std::string repo = name.is_string() ? data_set_of_path(name.get<std::string>()) : ""; !repo.empty())
        facts.data.push_back(repo);
  const Json state = object_in(folder / "trainer_state.json");
  facts.is_trained = !state.empty();
  if (facts.is_adapter) add_number(facts, "rank of the adapter", adapter.value("r", Json()));
  add_number(facts, "updates", state.value("global_step", Json()));
  add_number(facts, "epochs", state.value("epoch", Json()));
  add_number(facts, "learning rate", value_of_key(resolved, "learning_rate"));
  add_number(facts, "training loss", last_logged(state, "loss"));
  add_number(facts, "evaluation loss", last_logged(state, "eval_loss"));
  return facts;
}

std::string front_matter(const Facts& facts) {
  std::string text = "---\n";
  if (!facts.base.empty()) text += fmt::format("base_model: {}\n", facts.base);
  if (!facts.data.empty()) text += "datasets:\n";
  for (const std::string& repo : facts.data) text += fmt::format("- {}\n", repo);
  text += fmt::format("library_name: {}\n", facts.is_adapter ? "peft" : "transformers");
  text += "pipeline_tag: text-generation\ntags:\n- qtrain\n";
  if (facts.is_adapter) text += "- lora\n";
  return text + "---\n";
}

}  // namespace

std::string model_card(const fs::path& folder, const std::string& repo) {
  const Facts facts = facts_of(folder);
  std::string text = front_matter(facts) + fmt::format("\n# {}\n\n", repo.substr(repo.find('/') + 1));
  text += facts.is_adapter ? "A LoRA adapter" : "A model";
  if (!facts.base.empty()) text += facts.is_adapter ? " for " + facts.base : " that was fine-tuned from " + facts.base;
  text += fmt::format(", {} qtrain {}.\n", facts.is_trained ? "trained with" : "written by", kVersion);
  if (!facts.is_adapter || !facts.base.empty())
    text += fmt::format("\n```\nqtrain chat --model {}{}\n```\n", facts.is_adapter ? facts.base : repo,
                        facts.is_adapter ? " --adapter " + repo : "");
  if (!facts.numbers.empty()) text += "\n| | |\n|---|---|\n";
  for (const auto& [name, value] : facts.numbers) text += fmt::format("| {} | {} |\n", name, value);
  return text;
}

}  // namespace qtrain
