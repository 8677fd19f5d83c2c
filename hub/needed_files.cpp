#include "hub/needed_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string_view>
#include <system_error>

#include "core/formats/json.h"
#include "core/formats/weight_files.h"
#include "core/utf8.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndex = "model.safetensors.index.json", kWeights = "model.safetensors",
                           kAdapter = "adapter_model.safetensors";
constexpr std::array<std::string_view, 4> kConfigs = {"config.json", "adapter_config.json", kIndex,
                                                      "quantization_config.json"};
constexpr std::array<std::string_view, 10> kTexts = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",     "merges.txt",      "chat_template.jinja",   "chat_template.json",      "generation_config.json"};

bool is_text_of_model(const std::string& path) {
  return std::ranges::find(kTexts, path) != kTexts.end() ||
         (path.starts_with("additional_chat_templates/") && path.ends_with(".jinja"));
}

bool is_config_of_model(const std::string& path) {
  return std::ranges::find(kConfigs, path) != kConfigs.end();
}

[[noreturn]] void refuse_repo(const HubName& name, std::string cause, std::string remedy) {
  fail(ErrorKind::input, {.cause = std::move(cause), .place = name.text(), .remedy = std::move(remedy)});
}

/// All parts of the GGUF file that the name selects.
std::vector<RepoFile> gguf_files(const RepoListing& listing, const HubName& name) {
  std::vector<std::string> paths;
  for (const RepoFile& file : listing.files) paths.push_back(file.path);
  const std::vector<std::string> chosen =
      name.file.empty() ? gguf_paths(paths, name.quant) : std::vector<std::string>{name.file};
  std::vector<RepoFile> files;
  for (const std::string& path : chosen)
    if (const RepoFile* file = listing.find(path)) files.push_back(*file);
  if (!files.empty()) return files;
  std::string there;
  for (const std::string& path : paths)
    if (path.ends_with(".gguf")) there += (there.empty() ? "" : ", ") + path;
  constexpr std::size_t kMaxShown = 400;
  if (there.size() > kMaxShown) there = there.substr(0, kMaxShown) + "...";
  refuse_repo(name, fmt::format("the repository has no such GGUF file; it has {}", there.empty() ? "none" : there),
              "name one of them: OWNER/NAME/FILE.gguf");
}

bool is_weight_of(const std::string& path) {
  return is_weight_file(path) || path == kAdapter;
}

void require_weights(const RepoListing& listing, const HubName& name) {
  const auto has = [&](auto test) {
    return std::ranges::any_of(listing.files, [&](const RepoFile& file) { return test(file.path); });
  };
  if (has(is_weight_of)) return;
  if (has([](const std::string& path) { return path.ends_with(".gguf"); }))
    refuse_repo(name, "the repository has no safetensors, only GGUF files",
                "import one: qtrain import OWNER/NAME:Q4_K_M --output DIR");
  if (has([](const std::string& path) { return path.ends_with(".bin") || path.ends_with(".pth"); }))
    refuse_repo(name, "the repository has no safetensors, only pickled weights, which run code when they are read",
                "choose a repository, or a revision such as refs/pr/1, with safetensors");
}

bool has_file(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

}  // namespace

std::optional<std::set<std::string>> parts_in_index(const fs::path& snapshot) {
  constexpr std::uint64_t kMaxBytes = 1u << 26, kMaxValues = 1u << 22;
  if (!has_file(snapshot / kIndex)) return {};
  std::set<std::string> parts;
  try {
    const Json index = read_json(snapshot / kIndex, {.max_bytes = kMaxBytes, .max_values = kMaxValues});
    const Json map = index.is_object() ? index.value("weight_map", Json::object()) : Json::object();
    for (const Json& part : map)
      if (part.is_string()) parts.insert(part.get<std::string>());
  } catch (const Error&) {  // reading it later reports the error
    return {};
  }
  return parts;
}

const RepoFile* needed_index(const RepoListing& listing, const HubName& name, ModelFiles files) {
  if (files != ModelFiles::all || !name.quant.empty() || !name.file.empty()) return nullptr;
  return listing.find(kWeights) ? nullptr : listing.find(kIndex);
}

std::vector<RepoFile> needed_files(const RepoListing& listing, const HubName& name, ModelFiles files,
                                   const std::optional<std::set<std::string>>& parts) {
  if (!name.quant.empty() || !name.file.empty()) return gguf_files(listing, name);
  if (files == ModelFiles::all) require_weights(listing, name);
  // Some repositories have the weights twice, whole and in parts: the whole file is the one that is read.
  const bool whole = listing.find(kWeights), by_index = parts && needed_index(listing, name, files);
  const auto has_weights = [&](const std::string& path) {
    if (path == kAdapter || path == kWeights) return true;
    return by_index ? parts->contains(path) : !whole && is_weight_file(path);
  };
  if (by_index)
    for (const std::string& part : *parts)
      if (!listing.find(part))
        refuse_repo(name, fmt::format("{} names {}, which the repository does not have", kIndex, one_line(part)),
                    "choose another repository or revision");
  std::vector<RepoFile> needed;
  for (const RepoFile& file : listing.files) {
    const bool text = files != ModelFiles::config && is_text_of_model(file.path);
    const bool weight = files == ModelFiles::all && has_weights(file.path);
    if (is_config_of_model(file.path) || text || weight) needed.push_back(file);
  }
  if (needed.empty())
    refuse_repo(name, "the repository has no config.json, tokenizer or weights that this program reads",
                "check the name; a GGUF file is named as OWNER/NAME:Q4_K_M");
  return needed;
}

bool has_needed_files(const fs::path& snapshot, ModelFiles files) {
  const bool adapter = has_file(snapshot / "adapter_config.json");
  if (!adapter && !has_file(snapshot / "config.json") && files != ModelFiles::text) return false;
  const bool text = has_file(snapshot / "tokenizer.json") || has_file(snapshot / "tokenizer.model");
  if (files == ModelFiles::config) return true;
  if (!text && !adapter) return false;
  if (files == ModelFiles::text) return true;
  if (adapter && has_file(snapshot / kAdapter)) return true;
  if (has_file(snapshot / kWeights)) return true;
  const auto parts = parts_in_index(snapshot);
  return has_file(snapshot / kIndex) &&
         (!parts || std::ranges::all_of(*parts, [&](const std::string& part) { return has_file(snapshot / part); }));
}

bool has_all_shards(const fs::path& snapshot) {
  constexpr std::size_t kDigits = 5;
  std::set<fs::path> checked;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::size_t of = name.rfind("-of-");
    if (of == name.npos || of <= kDigits) continue;
    const std::string count = name.substr(of + 4, kDigits);
    if (name[of - kDigits - 1] != '-' || name.find_first_not_of("0123456789", of - kDigits) != of ||
        count.size() != kDigits || count.find_first_not_of("0123456789") != count.npos)
      continue;
    if (!checked.insert(it->path().parent_path() / (name.substr(0, of - kDigits) + name.substr(of))).second) continue;
    for (int i = 0, n = std::atoi(count.c_str()); i < n; ++i)
      if (!has_file(it->path().parent_path() /
                    (name.substr(0, of - kDigits) + fmt::format("{:05}", i) + name.substr(of))))
        return false;
  }
  return true;
}

}  // namespace qtrain
