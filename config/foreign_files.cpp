#include "config/loading.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "config/dialect_table.h"
#include "config/keys.h"

namespace qtrain {
namespace {

/// Whether a document names a model, rows or an output directory, under any of their names.
bool says_what_is_trained(const Json& document) {
  const DialectTable& table = dialect_table("foreign_files");
  return std::ranges::any_of(document.items(), [&](const auto& member) {
    return member.key() != "base_model_name_or_path" &&  // adapters that were trained have it too
           table.lists("configs", canonical_key(member.key()));
  });
}

}  // namespace

void require_config(const Json& document, std::string_view name) {
  if (says_what_is_trained(document)) return;
  for (const auto& [what, file] : dialect_table("foreign_files").object("files").items()) {
    const auto held = std::ranges::count_if(file.at("keys"), [&](const Json& key) { return document.contains(key); });
    const auto objects = std::ranges::count_if(file.value("objects", Json::array()), [&](const Json& key) {
      return document.value(key.get<std::string>(), Json()).is_object();
    });
    if (held + objects < 2) continue;
    const auto key = file.at("named_by").get<std::string>();
    const std::string folder = std::filesystem::path(name).parent_path();
    const bool whole = key.ends_with("_path");  // the folder is named, not the file
    fail(ErrorKind::usage,
         {.cause = fmt::format("this is {}, which does not say what is trained on what", what),
          .place = std::string(name),
          .remedy = fmt::format("write a config that names it: {{\"model_name_or_path\": ..., \"dataset_name\": ..., "
                                "\"{}\": \"{}\"}}",
                                key, whole ? (folder.empty() ? "." : folder) : std::string(name))});
  }
}

}  // namespace qtrain
