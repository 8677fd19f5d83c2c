#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/hmac.h"

namespace qtrain {

/// The variable that holds the secret of a run.
inline constexpr const char* kSecretVariable = "QTRAIN_RANK_SECRET";

/// The secret shared by the processes of a run, with which they authenticate each other.
class RankSecret {
 public:
  /// A new random secret.
  static RankSecret random();
  /// Throws ErrorKind::usage if it is too short or too long.
  static RankSecret of(std::string text);

  /// HMAC of the text, which proves knowledge of the secret.
  Mac proof(std::string_view text) const { return hmac_sha256(text_, text); }
  const std::string& text() const { return text_; }

 private:
  explicit RankSecret(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

/// The secret in the environment (kSecretVariable); nothing if it is not set.
std::optional<RankSecret> secret_of_environment();

/// The secret of this user, for processes that were not given one: it is in a file that no other user may read, in the
/// cache folder or else in the folder of temporary files, and is created when first needed. Throws ErrorKind::usage if
/// there is no place for such a file.
RankSecret secret_of_user();

/// The secret of the environment, else that of this user.
RankSecret shared_secret();

}  // namespace qtrain
