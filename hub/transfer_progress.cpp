#include "hub/transfer_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/progress.h"

namespace qtrain {

std::string size_text(std::uint64_t bytes) {
  constexpr double kKb = 1e3, kMb = 1e6, kGb = 1e9;
  const auto size = static_cast<double>(bytes);
  if (size < kMb) return fmt::format("{:.1f} kB", size / kKb);
  return size < kGb ? fmt::format("{:.1f} MB", size / kMb) : fmt::format("{:.2f} GB", size / kGb);
}

TransferProgress::TransferProgress(Log& log, std::string activity, std::uint64_t total)
    : log_(log), activity_(std::move(activity)), total_(static_cast<std::int64_t>(total)) {}

TransferProgress::~TransferProgress() {
  log_.end_live();
}

void TransferProgress::show() {
  constexpr std::chrono::seconds kLines{10}, kRate{2};
  const auto now = Clock::now();
  if (now - measured_ >= kRate) {
    const double seconds = std::chrono::duration<double>(now - measured_).count();
    rate_ = std::max(0.0, static_cast<double>(done_ - done_then_) / seconds);
    measured_ = now;
    done_then_ = done_;
  }
  const std::string unit =
      fmt::format("{}, {}{}", activity_, size_text(static_cast<std::uint64_t>(total_)),
                  rate_ > 0 ? fmt::format(" at {}/s", size_text(static_cast<std::uint64_t>(rate_))) : "");
  Progress p{.step = done_, .total = total_, .unit = unit, .counted = false};
  if (rate_ > 0) p.eta_seconds = static_cast<double>(total_ - done_) / rate_;
  if (log_.shows_live()) return log_.live(p);
  if (now - said_ < kLines) return;
  said_ = now;
  log_.info("{}", format_progress(p));
}

}  // namespace qtrain
