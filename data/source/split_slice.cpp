#include "data/source/split_slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"

namespace qtrain {
namespace {

[[noreturn]] void bad_split(std::string_view text, std::string_view why) {
  fail(ErrorKind::usage, {.cause = fmt::format("split \"{}\" {}", text, why),
                          .remedy = "Use a split or a part of one: train, train[:20%], train[100:200], test[-50:], or "
                                    "several, such as train+test."});
}

constexpr std::string_view kSplitSpaces = " \t\r\n";

std::string_view without_spaces(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSplitSpaces);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kSplitSpaces) - begin + 1);
}

/// Parses one part of a split expression.
class SliceReader {
 public:
  explicit SliceReader(std::string_view text) : text_(text), rest_(text) {}

  SplitSlice read() {
    const std::size_t end = std::min(rest_.find_first_of("[("), rest_.size());
    SplitSlice slice{.name = std::string(rest_.substr(0, end))};
    if (slice.name.empty() || slice.name.find_first_of(" \t+:]%") != slice.name.npos) bad_split(text_, "is not a name");
    rest_.remove_prefix(end);
    if (take('[')) {
      slice.from = bound();
      if (!take(':')) bad_split(text_, "has no colon between its brackets");
      slice.to = bound();
      if (!take(']')) bad_split(text_, "is not closed by a bracket");
    }
    if (percent_) slice.unit = SplitSlice::Unit::percent;
    if (take('(')) read_rounding(slice);
    if (!rest_.empty()) bad_split(text_, "has extra text at its end");
    for (const auto& bound : {slice.from, slice.to})
      if (percent_ && std::abs(bound.value_or(0)) > 100) bad_split(text_, "has more than 100 percent");
    return slice;
  }

 private:
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<std::int64_t> bound() {
    std::string digits;
    std::size_t n = rest_.starts_with('-') ? 1 : 0;
    while (n < rest_.size() && (std::isdigit(static_cast<unsigned char>(rest_[n])) || rest_[n] == '_')) ++n;
    std::ranges::copy_if(rest_.substr(0, n), std::back_inserter(digits), [](char c) { return c != '_'; });
    rest_.remove_prefix(n);
    percent_ = take('%') || percent_;
    if (digits.empty()) return {};
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size())
      bad_split(text_, "has a bound that is not a number");
    return value;
  }

  void read_rounding(SplitSlice& slice) {
    const std::string_view how = rest_.substr(0, rest_.find(')'));
    rest_.remove_prefix(std::min(how.size() + 1, rest_.size()));
    if (!percent_) bad_split(text_, "is rounded, but has no percentages");
    if (how != "closest" && how != "pct1_dropremainder")
      bad_split(text_, "has an unknown rounding (use closest or pct1_dropremainder)");
    if (how != "closest") slice.unit = SplitSlice::Unit::whole_percent;
  }

  std::string_view text_, rest_;
  bool percent_ = false;
};

}  // namespace

std::pair<std::int64_t, std::int64_t> SplitSlice::rows_of(std::int64_t size) const {
  if (unit == Unit::whole_percent && size < 100)
    fail(ErrorKind::usage,
         {.cause = fmt::format(
              "the split {} needs at least 100 rows for whole percents (pct1_dropremainder), but has {}", name, size),
          .remedy = "Remove the rounding."});
  const auto row = [&](std::int64_t bound) {
    if (unit == Unit::percent)  // rounds half to even, like Python
      bound = std::llrint(static_cast<double>(bound) * static_cast<double>(size) / 100.0);
    else if (unit == Unit::whole_percent)
      bound *= size / 100;
    return std::clamp<std::int64_t>(bound < 0 ? size + bound : bound, 0, size);
  };
  const std::int64_t begin = from ? row(*from) : 0, end = to ? row(*to) : size;
  return {begin, std::max(begin, end)};
}

std::vector<SplitSlice> read_split(std::string_view text) {
  std::vector<SplitSlice> slices;
  if (without_spaces(text).empty()) return slices;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t plus = std::min(text.find('+', at), text.size());
    slices.push_back(SliceReader(without_spaces(text.substr(at, plus - at))).read());
    at = plus + 1;
  }
  return slices;
}

}  // namespace qtrain
