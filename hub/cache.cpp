#include "hub/cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>

#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/utf8.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeparator = "--", kModels = "models--";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}
bool leads_to_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Whether a file's name has the type as a word of its own: "Q4_K" is not in "model-Q4_K_M.gguf".
bool has_type(const fs::path& file, const std::string& quant) {
  const std::string name = lower(file.filename().string()), type = lower(quant);
  const auto is_border = [&](std::size_t at) {
    return at >= name.size() || (std::isalnum(static_cast<unsigned char>(name[at])) == 0 && name[at] != '_');
  };
  for (std::size_t at = name.find(type); at != name.npos; at = name.find(type, at + 1))
    if ((at == 0 || is_border(at - 1)) && is_border(at + type.size())) return true;
  return false;
}

/// The name without the number of its part: "model" for "model-00002-of-00003.gguf".
std::string without_part(const std::string& path) {
  constexpr std::size_t kDigits = 5;
  const std::size_t of = path.rfind("-of-");
  if (of == path.npos || of <= kDigits || path[of - kDigits - 1] != '-') return path;
  return path.find_first_not_of("0123456789", of - kDigits) == of ? path.substr(0, of - kDigits - 1) : path;
}

}  // namespace

fs::path HubCache::folder_of(const HubName& name) const {
  std::string folder = name.kind == RepoKind::model ? "models" : "datasets";
  for (std::size_t begin = 0; begin <= name.repo.size();) {
    const std::size_t end = std::min(name.repo.find('/', begin), name.repo.size());
    folder.append(kSeparator).append(name.repo, begin, end - begin);
    begin = end + 1;
  }
  return folder_ / folder;
}

fs::path HubCache::snapshot_folder(const HubName& name, const std::string& commit) const {
  return folder_of(name) / "snapshots" / commit;
}

std::vector<std::string> HubCache::snapshots_of(const HubName& name) const {
  std::vector<std::string> commits;
  std::error_code error;
  for (fs::directory_iterator it(folder_of(name) / "snapshots", error), end; !error && it != end; it.increment(error))
    if (std::string commit = it->path().filename().string(); is_commit(commit)) commits.push_back(std::move(commit));
  std::ranges::sort(commits);
  return commits;
}

std::optional<std::string> HubCache::commit_of(const HubName& name) const {
  constexpr std::uint64_t kMaxBytes = 256;
  constexpr std::size_t kShortestPrefix = 7;
  std::error_code ignored;
  const fs::path ref = folder_of(name) / "refs" / name.revision;
  if (fs::is_regular_file(ref, ignored)) {
    std::string commit = read_text(ref, kMaxBytes);
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0) commit.pop_back();
    if (commit.empty()) return {};  // a program was killed while it wrote the file: the hub is asked again
    if (!is_commit(commit))
      fail(ErrorKind::input, {.cause = "the file should contain a commit, but contains " + one_line(commit),
                              .place = ref.string(),
                              .remedy = "remove the file: the hub says which commit the revision is"});
    if (leads_to_folder(snapshot_folder(name, commit))) return commit;
    return {};
  }
  std::vector<std::string> begins = snapshots_of(name);
  std::erase_if(begins, [&](const std::string& commit) { return !commit.starts_with(name.revision); });
  if (begins.size() != 1 || name.revision.size() < kShortestPrefix) return {};
  return begins[0];
}

std::optional<HubPlace> HubCache::find(const HubName& name) const {
  const auto commit = commit_of(name);
  if (!commit) return {};
  HubPlace place{.name = name, .commit = *commit, .path = snapshot_folder(name, *commit)};
  if (!name.quant.empty()) {
    const auto file = gguf_file_in(place.path, name.quant);
    if (!file) return {};
    place.path = *file;
  } else if (!name.file.empty()) {
    place.path /= name.file;
    const bool is_glob = name.kind == RepoKind::dataset && name.file.find_first_of("*?[") != name.file.npos;
    if (!is_glob && !is_there(place.path)) return {};
  }
  return place;
}

std::string HubCache::why_missing(const HubName& name) const {
  const fs::path folder = folder_of(name);
  if (!leads_to_folder(folder)) return fmt::format("there is no such path, and {} does not exist", folder.string());
  if (const auto commit = commit_of(name)) {
    if (name.quant.empty() && name.file.empty())
      return fmt::format("{} is not complete", snapshot_folder(name, *commit).string());
    const std::string what = name.quant.empty() ? name.file : fmt::format("a GGUF file of type {}", name.quant);
    return fmt::format("{} is not in {}", what, snapshot_folder(name, *commit).string());
  }
  std::vector<std::string> known;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder / "refs", error), end; !error && it != end; it.increment(error))
    if (std::error_code ignored; it->is_regular_file(ignored))
      known.push_back(it->path().lexically_relative(folder / "refs").string());
  std::ranges::sort(known);
  for (std::string& commit : snapshots_of(name)) known.push_back(std::move(commit));
  constexpr std::size_t kMaxListed = 12;
  if (known.size() > kMaxListed) known.resize(kMaxListed);
  return fmt::format("{} has no snapshot of revision {}; it has {}", folder.string(), name.revision,
                     known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
}

void write_cache_file(const fs::path& file, std::string_view contents) {
  create_folders(file.parent_path());
  std::error_code error;
  const fs::file_type type = fs::symlink_status(file, error).type();
  if (type != fs::file_type::not_found && type != fs::file_type::regular)
    fail(ErrorKind::disk, {.cause = "is not a regular file", .place = file.string(), .remedy = "remove it"});
  write_file(file, contents);
}

std::vector<std::string> gguf_paths(const std::vector<std::string>& paths, const std::string& quant) {
  std::vector<std::string> found;
  for (const std::string& path : paths)
    if (path.ends_with(".gguf") && has_type(path, quant)) found.push_back(path);
  std::ranges::sort(found);
  for (const std::string& path : found)
    if (without_part(path) != without_part(found[0]))
      fail(ErrorKind::input, {.cause = fmt::format("several GGUF files have the type {}: {} and {}", quant,
                                                   one_line(found[0]), one_line(path)),
                              .remedy = "name the file: OWNER/NAME/FILE.gguf"});
  return found;
}

std::optional<fs::path> gguf_file_in(const fs::path& folder, const std::string& quant) {
  constexpr int kMaxDepth = 3;
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it.depth() >= kMaxDepth) it.disable_recursion_pending();
    paths.push_back(it->path().lexically_relative(folder).string());
  }
  const std::vector<std::string> found = gguf_paths(paths, quant);
  if (found.empty()) return {};
  return folder / found[0];
}

std::optional<std::string> repo_of_snapshot(const fs::path& folder) {
  const fs::path plain = folder.has_filename() ? folder : folder.parent_path();
  if (!is_commit(plain.filename().string()) || plain.parent_path().filename() != "snapshots") return {};
  std::string repo = plain.parent_path().parent_path().filename().string();
  if (!repo.starts_with(kModels)) return {};
  repo.erase(0, kModels.size());
  if (const std::size_t at = repo.find(kSeparator); at != repo.npos) repo.replace(at, kSeparator.size(), "/");
  if (!is_repo_id(repo)) return {};
  return repo;
}

}  // namespace qtrain
