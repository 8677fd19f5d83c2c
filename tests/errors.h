#pragma once
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace qtrain::test {

/// The error that `action` ends with; a test failure and an empty text where it ends well.
template <class Action>
Error error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an error";
  return Error(ErrorKind::internal, {.cause = ""});
}

/// The text of the error of this kind that `action` ends with; "no error" where it ends well.
template <class Action>
std::string error_if_any(ErrorKind kind, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

/// The same of an action that has to end with an error.
template <class Action>
std::string error_of(ErrorKind kind, Action&& action) {
  std::string text = error_if_any(kind, action);
  EXPECT_NE(text, "no error");
  return text;
}

}  // namespace qtrain::test
