#pragma once
#include <string>
#include <utility>

#include "core/error.h"

namespace qtrain {

/// Throws an error shown to the template's user; the interpreter adds name and line.
[[noreturn]] inline void py_fail(std::string cause) {
  fail(ErrorKind::input, {.cause = std::move(cause)});
}

}  // namespace qtrain
