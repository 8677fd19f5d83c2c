#pragma once
#include <cstdint>
#include <string>

namespace qtrain {

/// How much may become of compressed bytes: some in any case, else a multiple of them, so that a small file can't fill
/// memory or disk.
class GrowthLimit {
 public:
  static constexpr std::uint64_t kFreeBytes = std::uint64_t{256} << 20;
  static constexpr std::uint64_t kTimes = 256;

  /// `remedy` tells whoever trusts the file what to do.
  GrowthLimit(std::uint64_t stored, std::string remedy);
  /// So many bytes more are about to be made. Errors (ErrorKind::input, without a place): beyond the limit.
  void add(std::uint64_t bytes);
  std::uint64_t made() const { return made_; }

 private:
  std::uint64_t stored_, most_, made_ = 0;
  std::string remedy_;
};

}  // namespace qtrain
