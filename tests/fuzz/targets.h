#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::fuzz {

/// A reader of outside files, called with arbitrary bytes. It may refuse them with an Error of kind input or usage;
/// anything else (another error, a crash, an endless loop, unbounded memory) is a bug.
struct Target {
  std::string_view name;
  void (*run)(std::string_view bytes);
  std::vector<std::string> seeds;  ///< valid files to start from, relative to the root of the repository
};

const std::vector<Target>& targets();

/// Runs the target; ignores errors that are refusals, and rethrows others.
void run(const Target& target, std::string_view bytes);

}  // namespace qtrain::fuzz
