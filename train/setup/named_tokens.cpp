#include "train/setup/named_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/os/paths.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr JsonRules kAsTransformersReads{.duplicate_keys = true};

Json read_or(const fs::path& file, Json otherwise) {
  return path_exists(file) ? read_json(file, kAsTransformersReads) : std::move(otherwise);
}

void write_values(const fs::path& file, const Json& json) {
  write_file(file, dump_json(json, 2) + "\n");
}

/// `eos_token_id` of a file (a number, a list, or absent) as a list.
Json end_tokens(const Json& json) {
  const auto ids = json.find("eos_token_id");
  if (ids == json.end() || ids->is_null()) return Json::array();
  return ids->is_array() ? *ids : Json::array({*ids});
}

/// Keeps the existing end tokens, since any of them ends a generation.
void set_ids(Json& generation, const std::string& key, std::int32_t id) {
  if (key != "eos_token_id") {
    generation[key] = id;
    return;
  }
  Json ids = end_tokens(generation);
  if (std::find(ids.begin(), ids.end(), Json(id)) != ids.end()) return;
  ids.insert(ids.begin(), id);
  generation[key] = std::move(ids);
}

}  // namespace

NamedTokens named_tokens(const ModelSection& model) {
  NamedTokens named;
  if (model.eos_token && *model.eos_token != kAutomaticEnd) named.emplace("eos_token", *model.eos_token);
  if (model.pad_token) named.emplace("pad_token", *model.pad_token);
  return named;
}

void require_tokens(const NamedTokens& named, const Tokenizer& tokenizer) {
  for (const auto& [name, text] : named)
    if (!tokenizer.id_of(text))
      fail(ErrorKind::usage,
           {.cause = fmt::format("\"{}\" is \"{}\", which is not a token of the tokenizer", name, text),
            .remedy =
                "use a single token of its vocabulary (qtrain tokenize shows how text is split), or remove the key"});
}

void write_named_tokens(const NamedTokens& named, const Tokenizer& tokenizer, const fs::path& folder) {
  const fs::path map = folder / "special_tokens_map.json", config = folder / "config.json",
                 generation = folder / "generation_config.json";
  for (const fs::path& file : {folder / "tokenizer_config.json", map}) {
    if (file == map && !path_exists(file)) continue;
    Json texts = read_or(file, Json::object());
    texts.update(named);
    write_values(file, texts);
  }
  if (!path_exists(config)) return;  // an adapter folder has no ids
  Json model = read_json(config, kAsTransformersReads);
  const Json ends = end_tokens(model);
  Json answers = read_or(generation, ends.empty() ? Json::object() : Json{{"eos_token_id", ends}});
  for (const auto& [name, text] : named) {
    const std::int32_t id = *tokenizer.id_of(text);
    model[name + "_id"] = id;
    set_ids(answers, name + "_id", id);
  }
  write_values(config, model);
  write_values(generation, answers);
}

std::vector<std::int32_t> model_end_tokens(const fs::path& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const Json ids = end_tokens(read_or(folder / name, Json::object()));
    std::vector<std::int32_t> ends;
    for (const Json& id : ids)
      if (id.is_number_integer()) ends.push_back(id.get<std::int32_t>());
    if (!ends.empty()) return ends;
  }
  return {};
}

}  // namespace qtrain
