#pragma once
#include <string_view>

namespace qtrain {

/// Exit codes and their meanings as help and man page show them; see docs/exit_codes.md.
struct ExitCode {
  int code;
  std::string_view meaning;
};
inline constexpr ExitCode kExitCodes[] = {{0, "done"},
                                          {1, "internal error"},
                                          {2, "usage or config error"},
                                          {3, "bad data or model files"},
                                          {4, "does not fit in memory"},
                                          {5, "non-finite loss"},
                                          {6, "disk or write error"},
                                          {7, "lost another rank"},
                                          {75, "stopped by a signal (run again to resume)"},
                                          {130, "interrupted twice"},
                                          {141, "the reader of stdout closed it"}};

}  // namespace qtrain
