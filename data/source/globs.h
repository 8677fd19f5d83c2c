#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

namespace qtrain {

/// Whether a path, after links, is a folder, or anything. False if that cannot be found out.
bool leads_to_folder(const std::filesystem::path& path);
bool is_there(const std::filesystem::path& path);
bool has_wildcard(std::string_view text);

/// The children of a folder, sorted. Throws ErrorKind::input if it cannot be listed.
std::vector<std::filesystem::path> children_of(const std::filesystem::path& folder);

/// Expands patterns with *, ?, [a-z], and ** (folders of any depth). Each folder is listed once for
/// all patterns, unless there are very many names.
class Globs {
 public:
  /// Together, the patterns may look at `max_names` names: those of a file that somebody else wrote could otherwise
  /// take any amount of time.
  explicit Globs(std::int64_t max_names = std::numeric_limits<std::int64_t>::max()) : left_(max_names) {}

  /// The paths that match, sorted, each once. Throws ErrorKind::input beyond the limit, and ErrorKind::stopped.
  std::vector<std::filesystem::path> expand(const std::filesystem::path& pattern);

 private:
  using Paths = std::vector<std::filesystem::path>;
  const Paths& children(const std::filesystem::path& folder);  ///< valid until the next call
  void add_folders(const Paths& bases, Paths& out);
  void add_matches(const std::filesystem::path& base, const std::filesystem::path& part, Paths& out);
  void count(std::size_t names, const std::filesystem::path& at);

  std::int64_t left_;
  std::map<std::filesystem::path, Paths> listed_;  ///< folders that have been listed, with `kept_` names
  std::size_t kept_ = 0;
};

}  // namespace qtrain
