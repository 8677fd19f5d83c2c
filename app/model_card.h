#pragma once
#include <filesystem>
#include <string>

namespace qtrain {

/// A card (README.md) for a result that has none: front matter that the hub reads, how to use it, and what its run says
/// about it, if that is there. Names of folders on this machine are left out.
std::string model_card(const std::filesystem::path& folder, const std::string& repo);

}  // namespace qtrain
