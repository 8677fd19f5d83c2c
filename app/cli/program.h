#pragma once
#include <memory>
#include <span>
#include <string>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/log.h"

namespace qtrain {

/// Runs the program on its words (without the program name) and returns its exit code. Throws what a command throws.
int run_program(std::span<const std::string> words, std::shared_ptr<Log> log);

/// The kind in a word, for programs: "usage".
std::string name_of(ErrorKind kind);
/// {"kind", "exit_code", "cause", "place", "remedy"}.
Json error_json(const Error& error);
/// Tells what ended the program, where --json was given also as a document {"error": error_json}, and returns the exit
/// code.
int report_error(const Error& error, Log& log);
/// The same for a stop that was asked for.
int report_stop(Log& log);

}  // namespace qtrain
