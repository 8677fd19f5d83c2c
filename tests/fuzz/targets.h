#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain::fuzz {

/// A reader of files from outside, given arbitrary bytes. It may refuse them with an Error of kind input or usage;
/// anything else (another error, a crash, no end, memory without bound) is a bug.
struct Target {
  std::string_view name;
  void (*run)(std::string_view bytes);
  std::vector<std::string> seeds;  ///< good files to start from, relative to the root of the repository
};

const std::vector<Target>& targets();

/// Runs the target; errors that are refusals end here, others leave as exceptions.
void run(const Target& target, std::string_view bytes);

}  // namespace qtrain::fuzz
