#include "config/document.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/dialect_table.h"
#include "config/keys.h"
#include "config/yaml.h"
#include "core/os/file.h"
#include "core/secrets.h"
#include "model/model_source.h"

namespace qtrain {

constexpr std::uint64_t kMaxConfigBytes = 16u << 20;

std::string ConfigDocument::place_of(std::string_view path) const {
  for (std::string p(path); !p.empty();) {
    if (const auto it = lines.find(p); it != lines.end()) return fmt::format("{}:{}", name, it->second);
    const auto dot = p.rfind('.');
    p = dot == std::string::npos ? "" : p.substr(0, dot);
  }
  return name;
}

Json without_comments(const Json& value) {
  if (!value.is_structured()) return value;
  Json out = value.is_object() ? Json::object() : Json::array();
  for (const auto& [key, member] : value.items())
    if (value.is_array())
      out.push_back(without_comments(member));
    else if (!key.starts_with('_'))
      out[key] = without_comments(member);
  return out;
}

ConfigDocument parse_config_document(std::string_view text, std::string_view name) {
  if (name.ends_with(".yaml") || name.ends_with(".yml")) return parse_yaml(text, name);
  ConfigDocument document{.name = std::string(name)};
  document.value = parse_json(text, name,
                              {.comments = true,
                               .max_bytes = kMaxConfigBytes,
                               .max_values = kMaxConfigValues,
                               .blame = ErrorKind::usage,
                               .key_lines = &document.lines});
  return document;
}

ConfigDocument read_config_document(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    fail(ErrorKind::usage, {.cause = "no such config file", .place = redacted("", file.string()).get<std::string>()});
  try {
    refuse_weights(file);
    return parse_config_document(read_text(file, kMaxConfigBytes), file.string());
  } catch (const Error& e) {  // an unreadable config is a usage error
    fail(ErrorKind::usage, e.text());
  }
}

void require_config(const ConfigDocument& document) {
  const Json& keys = document.value;
  if (!keys.is_object())
    fail(ErrorKind::usage, {.cause = fmt::format("a config must be an object of keys and values, not {}", show(keys)),
                            .place = document.name});
  const DialectTable& foreign = dialect_table("foreign_files");
  for (const auto& [what, form] : foreign.object("forms").items())
    for (const Json& key : form.at("keys"))
      if (keys.contains(key.get<std::string>()))
        fail(ErrorKind::usage, {.cause = fmt::format("this is {} (\"{}\")", what, key.get<std::string>()),
                                .place = document.name,
                                .remedy = form.at("remedy")});
  for (const auto& [key, value] : keys.items())  // adapter_config.json has base_model_name_or_path too
    if (key != "base_model_name_or_path" && foreign.lists("configs", canonical_key(key))) return;
  for (const auto& [what, file] : foreign.object("files").items()) {
    const auto held = std::ranges::count_if(file.at("keys"), [&](const Json& key) { return keys.contains(key); });
    const auto objects = std::ranges::count_if(file.value("objects", Json::array()), [&](const Json& key) {
      return keys.value(key.get<std::string>(), Json()).is_object();
    });
    if (held + objects < 2) continue;
    const auto key = file.at("named_by").get<std::string>();
    const std::string folder = std::filesystem::path(document.name).parent_path();
    const bool whole = key.ends_with("_path");  // configs name the folder, not the file
    fail(ErrorKind::usage,
         {.cause = fmt::format("this is {}, which does not say which model to train on which data", what),
          .place = document.name,
          .remedy = fmt::format("write a config that names it: {{\"model_name_or_path\": ..., \"dataset_name\": ..., "
                                "\"{}\": \"{}\"}}",
                                key, whole ? (folder.empty() ? "." : folder) : document.name)});
  }
}

}  // namespace qtrain
