#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace qtrain {

/// The remedy for a rank that is lost.
inline constexpr const char* kGoOn = "run the same command to go on from the last checkpoint";

/// What a rank has to say when it ends with an error. One that our launcher has started says it to the launcher, which
/// hears all ranks and tells the cause once.

/// Hands the error to the launcher; false where nobody listens.
bool leave_last_words(const Error& error);

/// Ends the cause of an error of which another rank knows more.
inline constexpr std::string_view kToldElsewhere = ", which its own message tells";
/// Whether it is such an error.
bool is_told_elsewhere(const Error& error);

/// The variable that tells a rank where the launcher listens, "NAME=value".
std::string last_words_variable(int descriptor);

/// What came in at the launcher: the error; nothing where a rank has said nothing whole.
std::optional<Error> heard_last_words(std::string_view text);

}  // namespace qtrain
