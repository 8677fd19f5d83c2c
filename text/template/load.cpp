#include "text/template/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/os/file.h"
#include "core/os/paths.h"
#include "text/template/named_templates.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxFile = std::uint64_t{64} << 20;
constexpr std::array<const char*, 7> kSpecialTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};

/// Reads an object; null if there is no such file.
Json read_object(const fs::path& file) {
  if (!path_exists(file)) return nullptr;
  Json json = read_json(file, {.duplicate_keys = true, .max_bytes = kMaxFile});
  if (!json.is_object()) fail(ErrorKind::input, {.cause = "not a JSON object", .place = file.string()});
  return json;
}

/// A token is a string, or an object with its text as `content`.
void add_tokens(std::map<std::string, std::string>& tokens, const Json& config) {
  if (!config.is_object()) return;
  for (const char* name : kSpecialTokens) {
    const auto held = config.find(name);
    if (held == config.end()) continue;
    const Json* text = &*held;
    if (held->is_object() && held->contains("content")) text = &held->at("content");
    if (text->is_string()) tokens.emplace(name, text->get<std::string>());
  }
}

/// Reads a file with \n line ends, like Python, so that a stock template is recognized with any line ends.
std::string read_lines(const fs::path& file) {
  const std::string text = read_text(file, kMaxFile);
  std::string lines;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    lines += text[i] == '\r' ? '\n' : text[i];
  }
  return lines;
}

/// chat_template.jinja and additional_chat_templates/NAME.jinja.
std::vector<NamedSource> template_files(const fs::path& folder) {
  std::vector<NamedSource> found;
  if (const fs::path main = folder / "chat_template.jinja"; path_exists(main))
    found.push_back({"default", read_lines(main), main.string()});
  const fs::path others = folder / "additional_chat_templates";
  if (!is_folder(others)) return found;
  for (const auto& entry : fs::directory_iterator(others))
    if (entry.path().extension() == ".jinja")
      found.push_back({entry.path().stem().string(), read_lines(entry.path()), entry.path().string()});
  return found;
}

/// `chat_template` of tokenizer_config.json: a string, or a list of {"name": ..., "template": ...}.
std::vector<NamedSource> configured_templates(const fs::path& folder) {
  const fs::path file = folder / "tokenizer_config.json";
  const Json config = read_object(file);
  const auto held = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || held == config.end() || held->is_null()) return {};
  if (held->is_string()) return {{"default", held->get<std::string>(), file.string()}};
  std::vector<NamedSource> found;
  const auto is_text = [](const Json& entry, const char* key) { return entry.contains(key) && entry[key].is_string(); };
  if (held->is_array())
    for (const Json& entry : *held)
      if (entry.is_object() && is_text(entry, "name") && is_text(entry, "template"))
        found.push_back({entry["name"].get<std::string>(), entry["template"].get<std::string>(), file.string()});
  if (!held->is_array() || found.size() != held->size())
    fail(ErrorKind::input,
         {.cause = "chat_template is neither a string nor a list of {name, template}", .place = file.string()});
  return found;
}

std::vector<NamedSource> find_templates(const fs::path& folder) {
  std::vector<NamedSource> found = template_files(folder);
  return found.empty() ? configured_templates(folder) : found;
}

}  // namespace

std::map<std::string, std::string> special_tokens(const fs::path& folder) {
  std::map<std::string, std::string> tokens;
  add_tokens(tokens, read_object(folder / "tokenizer_config.json"));
  add_tokens(tokens, read_object(folder / "special_tokens_map.json"));
  return tokens;
}

bool has_chat_template(const fs::path& model_folder) {
  return !find_templates(model_folder).empty();
}

std::map<std::string, std::string> chat_template_sources(const fs::path& model_folder) {
  std::map<std::string, std::string> sources;
  for (NamedSource& t : find_templates(model_folder)) sources.emplace(std::move(t.name), std::move(t.source));
  return sources;
}

ChatTemplate load_chat_template(const fs::path& path) {
  return load_chat_template(path, is_folder(path) ? path : fs::path());
}

ChatTemplate load_named_template(const std::string& name, const fs::path& model_folder) {
  if (name.find("{{") != name.npos || name.find("{%") != name.npos)
    return {name, "chat template of the config", special_tokens(model_folder)};
  std::error_code absent;
  if (fs::exists(name, absent)) return load_chat_template(name, model_folder);
  for (const NamedSource& t : find_templates(model_folder))
    if (t.name == name) return {t.source, t.place, special_tokens(model_folder)};
  if (std::string source = find_named_template(name); !source.empty())
    return {std::move(source), "chat template " + name, special_tokens(model_folder)};
  fail(ErrorKind::input, {.cause = fmt::format("unknown chat template \"{}\": neither a file nor a known name", name),
                          .place = "chat_template_path",
                          .remedy = fmt::format("known names are {}", fmt::join(template_names(), ", "))});
}

ChatTemplate load_chat_template(const fs::path& path, const fs::path& tokens_folder) {
  std::map<std::string, std::string> tokens;
  if (!tokens_folder.empty()) tokens = special_tokens(tokens_folder);
  const bool folder = is_folder(path);
  const std::vector<NamedSource> found =
      folder ? find_templates(path) : std::vector<NamedSource>{{"default", read_lines(path), path.string()}};
  if (found.empty())
    fail(ErrorKind::input, {.cause = "the model has no chat template: neither chat_template.jinja nor chat_template in "
                                     "tokenizer_config.json",
                            .place = path.string(),
                            .remedy = "Use a model trained for chat, or set chat_template_path to a template file."});
  return {found, std::move(tokens)};
}

}  // namespace qtrain
