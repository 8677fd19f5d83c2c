#include "data/source/globs.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <string>
#include <system_error>

#include "core/error.h"
#include "core/os/stop.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

bool is_link(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(path, error);
}

fs::path listable(const fs::path& base) {
  return base.empty() ? fs::path(".") : base;
}

// Sorts paths, which puts folders before what is in them, and removes repetitions.
void make_unique(std::vector<fs::path>& paths) {
  std::ranges::sort(paths);
  const auto repeated = std::ranges::unique(paths);
  paths.erase(repeated.begin(), repeated.end());
}

}  // namespace

bool leads_to_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool has_wildcard(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

std::vector<fs::path> children_of(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    all.push_back(it->path());
  if (error) fail(ErrorKind::input, {.cause = "cannot list the folder: " + error.message(), .place = folder.string()});
  std::ranges::sort(all);
  return all;
}

const Globs::Paths& Globs::children(const fs::path& folder) {
  constexpr std::size_t kMaxKept = std::size_t{1} << 20;
  throw_if_stopped();
  auto at = listed_.find(folder);
  if (at == listed_.end()) {
    if (kept_ > kMaxKept) listed_.clear(), kept_ = 0;
    at = listed_.emplace(folder, children_of(folder)).first;
    kept_ += at->second.size() + 1;
  }
  count(at->second.size() + 1, folder);
  return at->second;
}

void Globs::count(std::size_t names, const fs::path& at) {
  left_ -= static_cast<std::int64_t>(names);
  if (left_ < 0)
    fail(ErrorKind::input, {.cause = "the patterns for the files of this data set match too many names",
                            .place = at.string(),
                            .remedy = "name the files, or a folder"});
}

// Appends the folders and all folders below them, each once: `**` after `**` must not multiply them.
void Globs::add_folders(const Paths& bases, Paths& out) {
  std::set<fs::path> seen;
  for (const fs::path& base : bases) {
    Paths open = leads_to_folder(listable(base)) ? Paths{base} : Paths{};
    while (!open.empty()) {
      const fs::path folder = std::move(open.back());
      open.pop_back();
      if (!seen.insert(listable(folder)).second) continue;
      for (const fs::path& child : children(listable(folder)))
        if (leads_to_folder(child) && !is_link(child)) open.push_back(folder / child.filename());
    }
  }
  out.insert(out.end(), seen.begin(), seen.end());
}

void Globs::add_matches(const fs::path& base, const fs::path& part, Paths& out) {
  count(1, base);
  if (is_there(base / part)) {
    out.push_back(base / part);
  } else if (has_wildcard(part.string()) && leads_to_folder(listable(base))) {
    for (const fs::path& child : children(listable(base)))
      if (fnmatch(part.c_str(), child.filename().c_str(), FNM_PERIOD) == 0) out.push_back(base / child.filename());
  }
}

std::vector<fs::path> Globs::expand(const fs::path& pattern) {
  Paths found = {pattern.is_absolute() ? pattern.root_path() : fs::path()};
  fs::path before;
  for (const fs::path& part : pattern.relative_path()) {
    if (part == "**" && before == part) continue;
    before = part;
    Paths next;
    if (part == "**")
      add_folders(found, next);
    else
      for (const fs::path& base : found) add_matches(base, part, next);
    make_unique(next);
    found = std::move(next);
  }
  return found;
}

}  // namespace qtrain
