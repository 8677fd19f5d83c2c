#include "app/cli/near_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "config/keys.h"
#include "train/checkpoint/checkpoint_choice.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::vector<std::string> names_in(const fs::path& folder) {
  constexpr std::size_t kMaxNames = 10'000;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end;
       !error && it != end && names.size() < kMaxNames; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// An existing path that differs from `missing` in one name only; empty if there is none.
fs::path near_path(const fs::path& missing) {
  fs::path there;
  for (auto part = missing.begin(); part != missing.end(); ++part) {
    if (is_there(there / *part)) {
      there /= *part;
      continue;
    }
    const std::vector<std::string> names = names_in(there);
    const std::vector<std::string_view> known(names.begin(), names.end());
    const std::string_view near = nearest(part->string(), known);
    if (near.empty()) return {};
    there /= near;
    for (++part; part != missing.end(); ++part) there /= *part;
    return is_there(there) ? there : fs::path();
  }
  return {};
}

/// Whether an error's place may be a path: it may also be "file.json:12", "--output" or prose.
bool may_be_path(const std::string& place) {
  return !place.empty() && place[0] != '-' && place.find_first_of(":*?\n") == std::string::npos && !is_there(place);
}

}  // namespace

Error with_near_path(const Error& error) {
  if (error.kind() != ErrorKind::input && error.kind() != ErrorKind::usage) return error;
  ErrorText text = error.text();
  if (!may_be_path(text.place) || text.remedy.find("did you mean") != std::string::npos) return error;
  if (const std::string others = other_checkpoints(text.place); !others.empty()) {
    text.remedy = others + (text.remedy.empty() ? "" : "\n  ") + text.remedy;
    return {error.kind(), text};
  }
  const fs::path near = near_path(text.place);
  if (near.empty()) return error;
  text.remedy = fmt::format("did you mean \"{}\"?{}{}", near.string(), text.remedy.empty() ? "" : "\n  ", text.remedy);
  return {error.kind(), text};
}

}  // namespace qtrain
