#pragma once
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace qtrain::test {

/// The error that `action` throws; without one, the test fails and the text is empty.
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

/// The text of the error of this kind that `action` throws; "no error" without one.
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

/// The same for an action that must throw.
template <class Action>
std::string error_of(ErrorKind kind, Action&& action) {
  std::string text = error_if_any(kind, action);
  EXPECT_NE(text, "no error");
  return text;
}

}  // namespace qtrain::test
