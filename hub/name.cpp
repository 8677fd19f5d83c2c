#include "hub/name.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

namespace qtrain {
namespace {

constexpr std::size_t kMaxPart = 96, kMaxRevision = 255, kMaxPath = 1024;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_part(std::string_view part) {
  const auto allowed = [](char c) { return is_word(c) || c == '-' || c == '.'; };
  return !part.empty() && part.size() <= kMaxPart && std::ranges::all_of(part, allowed) && is_word(part.front()) &&
         is_word(part.back());
}

/// Endings of local files: "data/train.jsonl" is no repository, although a repository could have that name.
bool looks_like_file(std::string_view text) {
  constexpr std::array<std::string_view, 23> kEndings = {".json", ".jsonl",       ".ndjson", ".jsonc",   ".csv", ".tsv",
                                                         ".txt",  ".parquet",     ".arrow",  ".feather", ".ipc", ".gz",
                                                         ".zst",  ".zstd",        ".yaml",   ".yml",     ".md",  ".bin",
                                                         ".gguf", ".safetensors", ".jinja",  ".model",   ".pt"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return text.ends_with(ending); });
}

/// Cuts off and returns what is before the n-th slash, or everything.
std::string_view take_parts(std::string_view& text, int n) {
  std::size_t end = 0;
  for (int i = 0; i < n; ++i) {
    end = text.find('/', i == 0 ? 0 : end + 1);
    if (end == std::string_view::npos) break;
  }
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return taken;
}

/// Whether there is something of that name, even if it cannot be reached, such as a loop of links.
bool is_on_disk(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::symlink_status(path, ignored).type() != std::filesystem::file_type::not_found;
}

/// Cuts off and returns what follows the first `mark`.
std::string cut_after(std::string_view& text, char mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return {};
  std::string rest(text.substr(at + 1));
  text = text.substr(0, at);
  return rest;
}

}  // namespace

std::string HubName::text() const {
  std::string out = repo;
  if (revision != "main") out += "@" + revision;
  if (!quant.empty()) out += ":" + quant;
  return file.empty() ? out : out + "/" + file;
}

bool is_repo_id(std::string_view text) {
  if (text.find("--") != text.npos || text.find("..") != text.npos || text.ends_with(".git")) return false;
  const std::size_t slash = text.find('/');
  return slash == text.npos ? is_part(text) : is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

bool is_revision(std::string_view text) {
  if (text.empty() || text.size() > kMaxRevision || !is_safe_path(text) || text.front() == '-') return false;
  return text.find_first_of(" ~^:?*[") == text.npos && text.find("..") == text.npos && text.find("@{") == text.npos &&
         !text.ends_with('.') && !text.ends_with(".lock");
}

bool is_commit(std::string_view text) {
  constexpr std::size_t kSha1 = 40, kSha256 = 64;
  return (text.size() == kSha1 || text.size() == kSha256) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPath) return false;
  const auto refused = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f || c == '\\'; };
  if (std::ranges::any_of(path, refused)) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

std::optional<HubName> parse_hub_name(RepoKind kind, std::string_view text) {
  constexpr std::string_view kScheme = "hf://", kDatasets = "datasets/", kModels = "models/";
  const bool explicit_hub = text.starts_with(kScheme);
  if (explicit_hub) {
    text.remove_prefix(kScheme.size());
    if (text.starts_with(kModels) && kind == RepoKind::model) text.remove_prefix(kModels.size());
    if (text.starts_with(kDatasets) != (kind == RepoKind::dataset)) return {};
    if (kind == RepoKind::dataset) text.remove_prefix(kDatasets.size());
  }
  HubName name{.kind = kind, .repo = {}};
  std::string_view rest = text, repo = take_parts(rest, 2);
  if (kind == RepoKind::model) name.quant = cut_after(repo, ':');
  name.has_revision = repo.find('@') != repo.npos;
  if (name.has_revision) name.revision = cut_after(repo, '@');
  // The hub has two kinds of revisions with slashes: refs/pr/1 and refs/convert/parquet.
  if (name.revision == "refs" && (rest.starts_with("pr/") || rest.starts_with("convert/")))
    name.revision.append("/").append(take_parts(rest, 2));
  name.repo = repo;
  name.file = rest;
  if (!is_repo_id(name.repo) || !is_revision(name.revision)) return {};
  const bool has_file = !name.file.empty();
  if (text.ends_with('/') || (has_file && !is_safe_path(name.file))) return {};
  if (!has_file && !explicit_hub && looks_like_file(name.repo)) return {};
  if (!name.quant.empty() && (has_file || !is_part(name.quant))) return {};
  if (kind == RepoKind::model && text.find(':') != text.npos && name.quant.empty()) return {};
  if (kind == RepoKind::model && has_file && !name.file.ends_with(".gguf")) return {};
  return name;
}

std::optional<HubName> hub_name_unless_path(RepoKind kind, const std::string& text) {
  const std::filesystem::path path(text);
  if (text.empty() || is_on_disk(path) || (path.has_parent_path() && is_on_disk(*path.begin()))) return {};
  return parse_hub_name(kind, text);
}

}  // namespace qtrain
