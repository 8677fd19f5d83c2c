#pragma once
#include <memory>
#include <span>
#include <string>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/log.h"

namespace qtrain {

/// Runs the program with its arguments (without the program name). Returns the exit code; throws what a command throws.
int run_program(std::span<const std::string> words, std::shared_ptr<Log> log);

/// Machine-readable name of the kind: "usage".
std::string name_of(ErrorKind kind);
/// {"kind", "exit_code", "cause", "place", "remedy"}.
Json error_json(const Error& error);
/// Prints the error that ended the program, with --json also as a document {"error": error_json}. Returns the exit
/// code.
int report_error(const Error& error, Log& log);
/// The same for a requested stop.
int report_stop(Log& log);

}  // namespace qtrain
