#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "tests/e2e/process.h"

namespace qtrain::e2e {

/// A call that changes files, which a traced program is about to make.
struct FileCall {
  std::string name;              ///< of the kernel's: "openat", "write", "fsync", "rename", ...
  std::filesystem::path path;    ///< what it is about; of a call with a descriptor, what that stands for
  std::filesystem::path target;  ///< of a rename
};

/// Whether this machine lets a program trace another one (ptrace).
bool can_trace();

/// Runs a program to its end and asks `before` ahead of each call that changes files; an errno that it returns is how
/// the call fails, 0 lets it be made. While it is asked the files are as a SIGKILL would leave them.
Outcome run_traced(const Launch& launch, const std::function<int(const FileCall&)>& before);

}  // namespace qtrain::e2e
