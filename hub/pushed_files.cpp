#include "hub/pushed_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <system_error>

#include "core/formats/json.h"
#include "core/formats/weight_files.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "hub/local_contents.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 16> kResultFiles{"README.md",
                                                        "config.json",
                                                        "generation_config.json",
                                                        "adapter_config.json",
                                                        "adapter_model.safetensors",
                                                        "tokenizer.json",
                                                        "tokenizer.model",
                                                        "tokenizer_config.json",
                                                        "special_tokens_map.json",
                                                        "added_tokens.json",
                                                        "vocab.json",
                                                        "vocab.txt",
                                                        "merges.txt",
                                                        "chat_template.jinja",
                                                        "chat_template.json",
                                                        ".gitattributes"};
constexpr std::array<std::string_view, 3> kAboutRights{"LICENSE", "NOTICE", "USE_POLICY"};
constexpr const char* kTemplates = "additional_chat_templates";

bool is_result_file(const std::string& name) {
  return std::ranges::find(kResultFiles, name) != kResultFiles.end() || is_weight_file(name) ||
         name.ends_with(".gguf") ||
         std::ranges::any_of(kAboutRights, [&](std::string_view begin) { return name.starts_with(begin); });
}

/// What huggingface_hub does not push either, and remains of interrupted writes.
bool is_never_pushed(const std::string& name) {
  return name == ".git" || name == ".cache" || name == ".lock" || is_pending_file(name) ||
         name.ends_with(".incomplete");
}

bool has(const fs::path& folder, const char* name) {
  return is_plain_file(folder / name);
}

bool has_gguf(const fs::path& folder) {
  return std::ranges::any_of(fs::directory_iterator(folder),
                             [](const auto& entry) { return entry.path().extension() == ".gguf"; });
}

bool has_safetensors(const fs::path& folder) {
  return std::ranges::any_of(fs::directory_iterator(folder),
                             [](const auto& entry) { return is_weight_file(entry.path().filename().string()); });
}

/// The folder of the newest checkpoint in it, for a message.
std::optional<fs::path> some_checkpoint(const fs::path& folder) {
  std::optional<fs::path> newest;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || !name.starts_with("checkpoint-") || name.find('.') != name.npos) continue;
    const auto is_newer = [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() > b.size() : a > b;
    };
    if (!newest || is_newer(name, newest->filename().string())) newest = entry.path();
  }
  return newest;
}

void require_all_shards(const fs::path& folder) {
  const fs::path index = folder / "model.safetensors.index.json";
  if (!is_plain_file(index) || has(folder, "model.safetensors")) return;
  const Json map = read_json(index).value("weight_map", Json::object());
  for (const auto& [tensor, file] : map.items())
    if (file.is_string() && !is_plain_file(folder / file.get<std::string>()))
      fail(ErrorKind::input, {.cause = fmt::format("{} is missing, which the index names", file.get<std::string>()),
                              .place = folder.string(),
                              .remedy = "push a folder that is complete"});
}

void require_result(const fs::path& folder) {
  if (!is_folder(folder))
    fail(ErrorKind::input,
         {.cause = "is not a folder", .place = folder.string(), .remedy = "name the folder of a result"});
  const bool is_adapter = has(folder, "adapter_config.json") && has(folder, "adapter_model.safetensors");
  const bool has_model = has(folder, "config.json") && has_safetensors(folder);
  if (is_adapter || (has_gguf(folder) && !has_model)) return;
  if (has(folder, "config.json") && has_weights(folder)) {
    weights_in(folder);  // throws if they are incomplete, or pickles
    return require_all_shards(folder);
  }
  const auto checkpoint = some_checkpoint(folder);
  fail(ErrorKind::input, {.cause = "there is no model and no adapter in this folder",
                          .place = folder.string(),
                          .remedy = checkpoint ? fmt::format("push a checkpoint: {}", checkpoint->string())
                                               : "name the output_dir of a finished run, or the folder of a model"});
}

PushedFile pushed(const fs::path& folder, const fs::path& path) {
  if (fs::file_size(path) < 1024 && is_lfs_pointer(read_text(path))) fail_lfs_pointer(path);
  return {.path = path.lexically_relative(folder).generic_string(), .source = path};
}

void add_below(const fs::path& root, const fs::path& folder, PushSelection& selection) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_never_pushed(entry.path().filename().string())) continue;
    // A link to a folder may lead out of this one, or to a folder around it.
    if (entry.is_directory() && entry.is_symlink())
      selection.left_out.push_back(entry.path().lexically_relative(root).generic_string() + "/");
    else if (entry.is_directory())
      add_below(root, entry.path(), selection);
    else if (entry.is_regular_file())
      selection.files.push_back(pushed(root, entry.path()));
  }
}

void sort_by_path(PushSelection& selection) {
  std::ranges::sort(selection.files, {}, &PushedFile::path);
  std::ranges::sort(selection.left_out);
}

bool is_secret_file(const std::string& path) {
  constexpr std::array<std::string_view, 8> kNames{
      ".netrc", "netrc", "id_rsa", "id_ed25519", "token", ".git-credentials", "credentials.json", ".npmrc"};
  constexpr std::array<std::string_view, 4> kEndings{".pem", ".key", ".p12", ".pfx"};
  const std::string name = fs::path(path).filename().string();
  return name == ".env" || name.starts_with(".env.") || std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kEndings, [&](std::string_view end) { return name.ends_with(end); });
}

/// What looks like a key or token in a text: how it begins, and how many letters and digits follow.
struct SecretForm {
  std::string_view begin;
  std::size_t follow = 0;
};

constexpr std::array<SecretForm, 7> kForms{{{"hf_", 30},
                                            {"ghp_", 36},
                                            {"github_pat_", 40},
                                            {"sk-proj-", 40},
                                            {"sk-ant-", 40},
                                            {"AKIA", 16},
                                            {"PRIVATE KEY-----", 0}}};

/// What begins at `from` or later. The characters before it only tell where words begin.
std::optional<std::string> secret_in(std::string_view text, std::size_t from, const std::vector<std::string>& tokens) {
  for (const std::string& token : tokens)
    if (!token.empty() && text.find(token) != text.npos) return "the token of the hub";
  for (const SecretForm& form : kForms)
    for (std::size_t at = text.find(form.begin, from); at != text.npos; at = text.find(form.begin, at + 1)) {
      const std::string_view rest = text.substr(at + form.begin.size(), form.follow);
      const bool begins_word = at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0;
      const auto is_part = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
      if (rest.size() == form.follow && (begins_word || form.follow == 0) && std::ranges::all_of(rest, is_part))
        return fmt::format("what looks like a key or token ({}...)", form.begin);
    }
  return {};
}

/// Reads in pieces that overlap by more than a token has characters; ends at a byte that no text has.
std::optional<std::string> secret_in(const LocalContents& contents, const std::vector<std::string>& tokens) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20, kOverlap = std::uint64_t{1} << 12;
  for (std::uint64_t at = 0; at < contents.size(); at += kPiece) {
    const std::uint64_t begin = at < kOverlap ? 0 : at - kOverlap;
    const std::string text = contents.bytes(begin, std::min(contents.size(), at + kPiece) - begin);
    if (text.find('\0') != text.npos) return {};
    if (auto found = secret_in(text, begin > 0 ? 1 : 0, tokens)) return found;
  }
  return {};
}

}  // namespace

PushSelection files_to_push(const fs::path& given, WhichFiles which) {
  const fs::path folder = absolute_path(given);
  require_result(folder);
  PushSelection selection;
  if (which == WhichFiles::all) {
    add_below(folder, folder, selection);
    sort_by_path(selection);
    return selection;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_never_pushed(name)) continue;
    if (entry.is_regular_file() && is_result_file(name))
      selection.files.push_back(pushed(folder, entry.path()));
    else if (entry.is_directory() && !entry.is_symlink() && name == kTemplates)
      add_below(folder, entry.path(), selection);
    else
      selection.left_out.push_back(name + (entry.is_directory() ? "/" : ""));
  }
  sort_by_path(selection);
  return selection;
}

void require_no_secrets(const std::vector<PushedFile>& files, const std::vector<std::string>& tokens) {
  const auto refuse_secret = [](const std::string& path, const std::string& what) {
    fail(ErrorKind::usage, {.cause = "is not pushed: " + what,
                            .place = path,
                            .remedy = "remove it, or push it nevertheless with --allow_secrets"});
  };
  for (const PushedFile& file : files) {
    if (is_secret_file(file.path)) refuse_secret(file.path, "its name is that of a file with secrets");
    const LocalContents contents = file.source.empty() ? LocalContents::of_text(file.text) : LocalContents(file.source);
    if (const auto found = secret_in(contents, tokens)) refuse_secret(file.path, "it contains " + *found);
  }
}

}  // namespace qtrain
