#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace qtrain {

/// The remedy for a lost rank.
inline constexpr const char* kResumeRemedy = "run the same command again to resume from the last checkpoint";

/// Sends the error with which a rank ends to the qtrain launcher that started it, which collects the errors of all
/// ranks and prints the cause once. Returns false if there is no such launcher.
bool send_final_error(const Error& error);

/// Tells the launcher that this rank goes on although the others end, for as long as it takes, and is not to be killed
/// for that; and that this is over. Each may be sent once, in this order, before an error. They do nothing without a
/// launcher.
void send_goes_on_alone();
void send_ends_too();
/// Whether a rank has sent the first but not the second.
bool goes_on_alone(std::string_view text);

/// The end of the cause of an error that another rank reports in more detail.
inline constexpr std::string_view kReportedElsewhere = ", as its own message says";
/// Whether the cause ends with kReportedElsewhere.
bool is_reported_elsewhere(const Error& error);

/// The environment variable that tells a rank which descriptor to write to, "NAME=value".
std::string final_error_variable(int descriptor);

/// Parses what a rank has sent. Returns nothing if it has sent no complete error.
std::optional<Error> parse_final_error(std::string_view text);

}  // namespace qtrain
