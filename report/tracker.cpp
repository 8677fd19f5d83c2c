#include "report/tracker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "core/hash.h"
#include "core/os/paths.h"
#include "report/metrics.h"

namespace qtrain {

std::string tag_of(const std::string& key) {
  constexpr std::string_view kEvaluation = "eval_";
  return key.starts_with(kEvaluation) ? "eval/" + key.substr(kEvaluation.size()) : "train/" + key;
}

std::string run_name(const std::filesystem::path& output) {
  const std::filesystem::path whole = absolute_path(output);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::string from_environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

std::string fresh_id(std::size_t length) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return digest_of(fmt::format("{:.9f} {} {}", unix_time(), ::getpid(), host.data())).hex().substr(0, length);
}

}  // namespace qtrain
