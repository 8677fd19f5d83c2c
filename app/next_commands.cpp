#include "app/next_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/cli/command_table.h"
#include "config/keys.h"
#include "core/plural.h"
#include "core/secrets.h"
#include "core/utf8.h"
#include "hub/cache.h"
#include "hub/environment.h"
#include "text/template/load.h"
#include "train/checkpoint/checkpoint_folders.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

std::string size_text(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.0f} kB", std::max(bytes / 1e3, 1.0));
  return bytes < 1e9 ? fmt::format("{:.1f} MB", bytes / 1e6) : fmt::format("{:.1f} GB", bytes / 1e9);
}

bool has_any(const fs::path& folder, std::initializer_list<const char*> names) {
  std::error_code ignored;
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return fs::exists(folder / name, ignored); });
}

/// The name on the hub of a folder, if it means this very snapshot of its cache; else the path.
std::string shortest_name(const fs::path& model) {
  const auto repo = repo_of_snapshot(model);
  if (!repo) return model.string();
  try {
    const auto place = HubCache(hub_environment().cache).find({.repo = *repo});
    std::error_code ignored;
    if (place && fs::equivalent(place->path, model, ignored)) return *repo;
  } catch (const Error&) {  // refs/main is no commit
  }
  return model.string();
}

}  // namespace

std::string saved_files(const fs::path& folder) {
  std::vector<std::string> weights;
  double bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".safetensors") continue;
    weights.push_back(entry.path().filename().string());
    bytes += static_cast<double>(entry.file_size());
  }
  std::string text =
      weights.size() == 1 ? weights[0] : counted(static_cast<std::int64_t>(weights.size()), "weight file");
  text += fmt::format(" ({})", size_text(bytes));
  const auto checkpoints = static_cast<std::int64_t>(find_checkpoints(folder).size());
  return checkpoints > 0 ? text + ", " + counted(checkpoints, "checkpoint") : text;
}

std::string shown_override(const std::string& key, const std::string& value) {
  if (is_secret_key(key)) return fmt::format("{}={}", key, kRedacted);
  const Json json = Json::parse(value, nullptr, false);
  return key + "=" + (json.is_structured() ? dump_json(redacted(key, json)) : without_credentials(value));
}

namespace {

/// Quotes a word as $'...', whose escapes Bash, Zsh and shells that follow POSIX.1-2024 understand.
std::string ansi_c_word(const std::string& word) {
  std::string quoted = "$'";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f)
      quoted += fmt::format("\\{:03o}", byte);
    else
      quoted += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./=:,+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  if (one_line(word) != word) return ansi_c_word(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string trial_command(const TriedModel& tried) {
  return tried.has_chat_template ? "qtrain chat " + tried.options
                                 : fmt::format("qtrain generate {} --raw --prompt \"...\"", tried.options);
}

std::vector<std::string> next_commands(const FinishedOutput& output) {
  const ResolvedConfig& config = output.config;
  const fs::path model = config.value.model.model_name_or_path;
  const bool adapter = has_any(output.folder, {"adapter_config.json"});
  const std::string folder = shell_word(output.folder.string());
  const std::string with =
      adapter ? fmt::format("--model {} --adapter {}", shell_word(shortest_name(model)), folder) : "--model " + folder;
  const bool text = has_any(output.folder, {"tokenizer.json", "tokenizer.model"}) ||
                    (adapter && has_any(model, {"tokenizer.json", "tokenizer.model"}));
  std::vector<std::string> all;
  const auto add = [&](bool fits, const char* command, const std::string& words) {
    if (fits && find_command(command) != nullptr) all.push_back(fmt::format("qtrain {} {}", command, words));
  };
  const bool chats = has_chat_template(output.folder) || (adapter && has_chat_template(model));
  if (text) all.push_back(trial_command({.options = with, .has_chat_template = chats}));
  add(text && chats, "generate", with + " --prompt \"...\"");
  std::string same = shell_word(output.config_file);
  for (const auto& [key, value] : output.overrides) same += " " + shell_word(shown_override(key, value));
  add(config.given("eval_dataset_name"), "eval", same);
  add(adapter, "merge", fmt::format("{} --output {}", with, shell_word((output.folder / "merged").string())));
  add(true, "report", folder);
  return all;
}

}  // namespace qtrain
