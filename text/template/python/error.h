#pragma once
#include <string>
#include <utility>

#include "core/error.h"

namespace qtrain {

/// Throws what a template's user is told; the interpreter adds name and line.
[[noreturn]] inline void py_fail(std::string cause) {
  fail(ErrorKind::input, {.cause = std::move(cause)});
}

}  // namespace qtrain
