#pragma once
#include <exception>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/log.h"

namespace qtrain {

/// The outermost layer of an example program: runs body(arguments, log), reports errors, and returns the exit code.
template <class Body>
int run_program(int argc, char** argv, const Body& body) {
  Log log;
  try {
    body(std::vector<std::string>(argv + 1, argv + argc), log);
    return 0;
  } catch (const Error& error) {
    log.error("{}", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    log.error("{}", error.what());
    return static_cast<int>(ErrorKind::disk);
  }
}

}  // namespace qtrain
