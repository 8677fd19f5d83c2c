#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>

namespace qtrain {

/// A file to write whose contents take long to produce.
struct SlowResult {
  std::filesystem::path file;
  /// Asked right before the rename for the name that the result gets, in the folder of the file: the name that it is
  /// asked about, or another one if that is taken by then. Not asked about a device or FIFO, which is written in place.
  std::function<std::filesystem::path(const std::filesystem::path& file)> name_now = {};
};
/// Writes the result of a command as write_result (core/os/file.h) does. Returns where it is.
std::filesystem::path write_result(
    const SlowResult& result,
    const std::function<void(const std::function<void(std::span<const std::byte>)>& append)>& produce);

}  // namespace qtrain
