#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace qtrain {

/// The error with which a rank ends. A rank that our launcher has started sends it to the launcher, which hears from
/// all ranks and prints the cause once.

/// The remedy for a lost rank.
inline constexpr const char* kGoOn = "run the same command to go on from the last checkpoint";

/// Sends the error to the launcher. Returns false where there is none.
bool send_final_error(const Error& error);

/// Ends the cause of an error that another rank knows more about.
inline constexpr std::string_view kToldElsewhere = ", as its own message says";
/// Whether the cause ends with kToldElsewhere.
bool is_told_elsewhere(const Error& error);

/// The environment variable that tells a rank which descriptor to write to, "NAME=value".
std::string final_error_variable(int descriptor);

/// Parses what a rank has sent. Returns nothing if it has sent no complete error.
std::optional<Error> parse_final_error(std::string_view text);

}  // namespace qtrain
