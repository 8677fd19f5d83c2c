#include "config/document.h"

#include <fmt/format.h>

#include "core/file.h"
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
    fail(ErrorKind::usage, {.cause = "no such config file", .place = file.string()});
  try {
    refuse_weights(file);
    return parse_config_document(read_text(file, kMaxConfigBytes), file.string());
  } catch (const Error& e) {  // a config that cannot be read is a wrong use
    fail(ErrorKind::usage, e.text());
  }
}

}  // namespace qtrain
