#pragma once
#include <cstdint>
#include <string>
#include <utility>

namespace qtrain {

/// Limits the size of decoded data to a fixed allowance or a multiple of the stored size, so that a small file cannot
/// fill memory or disk, or keep a run busy for hours.
class GrowthLimit {
 public:
  static constexpr std::uint64_t kFreeBytes = std::uint64_t{256} << 20;
  static constexpr std::uint64_t kTimes = 256;

  /// What is allowed.
  struct Allowance {
    std::uint64_t free_bytes = kFreeBytes, times = kTimes;
  };

  /// `remedy`: advice for users who trust the file.
  GrowthLimit(std::uint64_t stored, std::string remedy) : GrowthLimit(stored, std::move(remedy), {}) {}
  GrowthLimit(std::uint64_t stored, std::string remedy, Allowance allowance);
  /// Call before decoding `bytes` more. Throws ErrorKind::input (without a place) beyond the limit.
  void add(std::uint64_t bytes);
  std::uint64_t made() const { return made_; }

 private:
  std::uint64_t stored_;
  Allowance allowance_;
  std::uint64_t most_, made_ = 0;
  std::string remedy_;
};

}  // namespace qtrain
