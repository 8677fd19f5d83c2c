#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "tests/e2e/process.h"

namespace qtrain::e2e {

/// A system call that changes files, which a traced program is about to make.
struct FileCall {
  std::string name;              ///< the kernel's name of the call: "openat", "write", "fsync", "rename", ...
  std::filesystem::path path;    ///< the affected file; for a call with a descriptor, the file that it refers to
  std::filesystem::path target;  ///< of a rename
};

/// Whether this machine lets a program trace another one (ptrace).
bool can_trace();

/// Runs a program to its end, calling `before` ahead of each call that changes files. If it returns an errno, the call
/// fails with that; 0 lets it happen. During `before`, the files are as they would be after a SIGKILL.
Outcome run_traced(const Launch& launch, const std::function<int(const FileCall&)>& before);

}  // namespace qtrain::e2e
