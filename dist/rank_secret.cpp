#include "dist/rank_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/os/descriptor.h"
#include "core/os/file.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShortestSecret = 16, kLongestSecret = 1024;
constexpr const char* kSecretFile = "rank-secret";
constexpr mode_t kOthers = 077;

std::string random_text() {
  std::array<std::byte, 32> bytes{};
  fill_with_randomness(bytes);
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

bool is_private(const struct stat& about) {
  return about.st_uid == ::geteuid() && (about.st_mode & kOthers) == 0;
}

/// A secret, or why there is none.
struct Found {
  std::optional<RankSecret> secret = {};
  std::string why = {};
};

Found not_found(const fs::path& file, std::string_view why) {
  return {.why = fmt::format("{}: {}", file.string(), why)};
}

Found read_secret(const fs::path& file) {
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (in.get() < 0) return not_found(file, std::strerror(errno));
  struct stat about {};
  if (::fstat(in.get(), &about) != 0 || !S_ISREG(about.st_mode)) return not_found(file, "it is not a regular file");
  if (!is_private(about)) return not_found(file, "other users may read it");
  std::array<char, kLongestSecret> bytes{};
  const ssize_t n = ::read(in.get(), bytes.data(), bytes.size());
  if (n < static_cast<ssize_t>(kShortestSecret)) return not_found(file, "it is too short");
  return {.secret = RankSecret::of({bytes.data(), static_cast<std::size_t>(n)})};
}

// The file gets its name when it is complete; ranks that start at the same time use the first one.
std::string make_secret(const fs::path& file) {
  const fs::path draft = fmt::format("{}.{}.{}", file.string(), ::getpid(), random_text().substr(0, 8));
  Descriptor out(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (out.get() < 0) return std::strerror(errno);
  const std::string text = random_text();
  const bool written = ::write(out.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  std::string why = written && out.close() == 0 ? "" : std::strerror(errno);
  if (why.empty() && ::link(draft.c_str(), file.c_str()) != 0 && errno != EEXIST) why = std::strerror(errno);
  ::unlink(draft.c_str());
  return why;
}

Found secret_in(const fs::path& folder) {
  const fs::path file = folder / kSecretFile;
  if (Found found = read_secret(file); found.secret) return found;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(file, error)))
    if (const std::string why = make_secret(file); !why.empty()) return not_found(file, why);
  return read_secret(file);  // another process may have made it just now
}

// For users without a writable home. The folder must belong to the user, because anybody can create one there.
Found secret_in_temporary_folder() {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error) / fmt::format("qtrain-{}", ::geteuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return not_found(folder, std::strerror(errno));
  struct stat about {};
  if (::lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || !is_private(about))
    return not_found(folder, "it is not a folder that belongs to this user alone");
  return secret_in(folder);
}

}  // namespace

RankSecret RankSecret::random() {
  return RankSecret(random_text());
}

RankSecret RankSecret::of(std::string text) {
  if (text.size() < kShortestSecret || text.size() > kLongestSecret)
    fail(ErrorKind::usage,
         {.cause = fmt::format("the secret of the ranks has {} characters", text.size()),
          .place = kSecretVariable,
          .remedy = fmt::format("set it to {} to {} characters, such as the output of \"openssl rand -hex "
                                "32\"",
                                kShortestSecret, kLongestSecret)});
  return RankSecret(std::move(text));
}

std::optional<RankSecret> secret_of_environment() {
  const char* text = std::getenv(kSecretVariable);
  if (!text || *text == '\0') return {};
  return RankSecret::of(text);
}

RankSecret secret_of_user() {
  std::vector<std::string> reasons;
  if (const fs::path caches = user_cache_folder(); !caches.empty()) {
    std::error_code error;
    fs::create_directories(caches, error);
    Found found = secret_in(caches);
    if (found.secret) return *found.secret;
    reasons.push_back(found.why);
  }
  Found found = secret_in_temporary_folder();
  if (found.secret) return *found.secret;
  reasons.push_back(found.why);
  fail(ErrorKind::usage,
       {.cause = fmt::format("the ranks share no secret, and none can be stored for this user ({})",
                             fmt::join(reasons, "; ")),
        .remedy = fmt::format("set {} to the same text for all ranks, such as the output of \"openssl rand -hex 32\"",
                              kSecretVariable)});
}

RankSecret shared_secret() {
  if (auto given = secret_of_environment()) return *given;
  return secret_of_user();
}

}  // namespace qtrain
