#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/hmac.h"

namespace qtrain {

/// The variable that holds the secret of a run.
inline constexpr const char* kSecretVariable = "QTRAIN_RANK_SECRET";

/// What the processes of a run know and nobody else does: by it they recognize each other.
class RankSecret {
 public:
  /// One that nobody can guess.
  static RankSecret random();
  /// Errors: ErrorKind::usage where it is too short to be a secret.
  static RankSecret of(std::string text);

  /// Shows whoever has the same secret that this process has it; depends on the text.
  Mac proof(std::string_view text) const { return hmac_sha256(text_, text); }
  const std::string& text() const { return text_; }

 private:
  explicit RankSecret(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

/// That of the environment (kSecretVariable); nothing where it names none.
std::optional<RankSecret> secret_of_environment();

/// That of this user, for processes that nobody has given one: it lies in a file that no other user may read, in the
/// folder of caches or else in that of temporary files, and is made when it is first asked for. Errors:
/// ErrorKind::usage where there is no place for such a file.
RankSecret secret_of_user();

/// The first of these two that there is.
RankSecret shared_secret();

}  // namespace qtrain
