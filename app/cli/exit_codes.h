#pragma once
#include <string_view>

namespace qtrain {

/// What the program's exit codes mean, in the words of help and man page; docs/exit_codes.md says more.
struct ExitCode {
  int code;
  std::string_view meaning;
};
inline constexpr ExitCode kExitCodes[] = {{0, "done"},
                                          {1, "internal error"},
                                          {2, "usage or config"},
                                          {3, "bad data or model files"},
                                          {4, "does not fit in memory"},
                                          {5, "non-finite loss"},
                                          {6, "disk or write error"},
                                          {7, "a rank was lost"},
                                          {75, "stopped by a signal with a checkpoint"},
                                          {130, "second interrupt"},
                                          {141, "nobody reads stdout any more"}};

}  // namespace qtrain
