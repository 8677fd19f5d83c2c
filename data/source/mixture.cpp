#include "data/source/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <span>
#include <utility>

#include "core/idx.h"
#include "core/plural.h"
#include "data/numpy_random.h"

namespace qtrain {
namespace {

using Counts = std::vector<std::int64_t>;

[[noreturn]] void bad_mixture(std::string cause, std::string remedy = "") {
  fail(ErrorKind::usage, {.cause = std::move(cause), .place = "datasets", .remedy = std::move(remedy)});
}

Counts begins_of(const Counts& sizes) {
  Counts begins(sizes.size(), 0);
  std::partial_sum(sizes.begin(), sizes.end() - 1, begins.begin() + 1);
  return begins;
}

/// Round-robin order; the strategy determines which sources take part in round `n`.
Counts round_robin(const Counts& sizes, MixStrategy strategy) {
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  const Counts begins = begins_of(sizes);
  Counts order;
  for (std::int64_t n = 0; n < (strategy == MixStrategy::first_exhausted ? *least : *most); ++n)
    for (std::size_t s = 0; s < sizes.size(); ++s)
      if (n < sizes[s] || (strategy == MixStrategy::all_exhausted && sizes[s] > 0))
        order.push_back(begins[s] + n % sizes[s]);
  return order;
}

/// Draws sources like numpy's Generator.choice(n, p=probabilities).
class SourceDraw {
 public:
  SourceDraw(const std::vector<double>& probabilities, std::uint64_t seed) : random_(seed) {
    const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
    double reached = 0;
    for (const double p : probabilities) upto_.push_back(reached += p / sum);
    for (double& u : upto_) u /= upto_.back();
  }
  std::size_t next() {
    return static_cast<std::size_t>(std::upper_bound(upto_.begin(), upto_.end(), random_.next()) - upto_.begin());
  }

 private:
  NumpyRandom random_;
  std::vector<double> upto_;
};

Counts by_probability(const Counts& sizes, const MixRules& rules) {
  const Counts begins = begins_of(sizes);
  const bool once = rules.strategy == MixStrategy::all_exhausted_without_replacement;
  std::vector<bool> done(sizes.size());
  auto left = std::count_if(rules.probabilities.begin(), rules.probabilities.end(), [](double p) { return p > 0; });
  const auto enough = rules.strategy == MixStrategy::first_exhausted ? left - 1 : 0;
  Counts at(sizes.size(), 0), order;
  for (SourceDraw draw(rules.probabilities, rules.seed); left > enough;) {
    const std::size_t s = draw.next();
    if (once && done[s]) continue;
    order.push_back(begins[s] + at[s]);
    if (++at[s] < sizes[s]) continue;
    at[s] = 0;
    left -= !done[s];
    done[s] = true;
  }
  return order;
}

void check_probabilities(const Counts& sizes, const std::vector<double>& probabilities) {
  if (probabilities.size() != sizes.size())
    bad_mixture("some sources have a weight and others do not", "Give every source a weight.");
  double sum = 0;
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    if (!(probabilities[s] >= 0) || !std::isfinite(probabilities[s])) bad_mixture("a weight is negative");
    if (probabilities[s] > 0 && sizes[s] == 0) bad_mixture("a source with a weight has no rows", "Remove it.");
    sum += probabilities[s];
  }
  if (!(sum > 0)) bad_mixture("all weights are 0");
}

/// Fails if two splits of a source resolve to the same files, since rows would count twice.
void require_other_files(const DataSource& source, std::span<const std::vector<std::filesystem::path>> files) {
  for (std::size_t s = 1; s < files.size(); ++s)
    for (std::size_t other = 0; other < s; ++other)
      if (source.splits[s].name != source.splits[other].name && files[s] == files[other])
        fail(ErrorKind::input, {.cause = fmt::format("splits \"{}\" and \"{}\" are the same files",
                                                     source.splits[other].name, source.splits[s].name),
                                .place = source.files[0],
                                .remedy = "Use a folder with a file for each split, or a single split."});
}

}  // namespace

Counts mixed_order(const Counts& sizes, const MixRules& rules) {
  if (rules.strategy == MixStrategy::concatenate) {
    Counts order(idx(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  if (rules.probabilities.empty()) return round_robin(sizes, rules.strategy);
  check_probabilities(sizes, rules.probabilities);
  return by_probability(sizes, rules);
}

Counts fraction_sizes(const Counts& sizes, const std::vector<double>& fractions) {
  check_probabilities(sizes, fractions);
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  double total = INFINITY;
  for (std::size_t s = 0; s < sizes.size(); ++s)
    if (fractions[s] > 0) total = std::min(total, static_cast<double>(sizes[s]) / (fractions[s] / sum));
  Counts taken;
  for (const double f : fractions) taken.push_back(std::llrint(f / sum * total));  // rounds half to even, like Python
  return taken;
}

SourceFiles source_files(const std::vector<DataSource>& sources, Split split) {
  SourceFiles files;
  for (const DataSource& source : sources) {
    WantedSplit wanted(split);
    wanted.cards = source.cards;
    if (source.splits.empty()) files.push_back(resolve_data_files(source.files, wanted));
    const std::size_t first = files.size();
    for (const SplitSlice& slice : source.splits) {
      wanted.name = slice.name;
      files.push_back(resolve_data_files(source.files, wanted));
    }
    require_other_files(source, std::span(files).subspan(first));
  }
  return files;
}

std::vector<RawRows> source_rows(const std::vector<DataSource>& sources, const SourceFiles& files) {
  std::vector<RawRows> parts;
  auto next = files.begin();
  for (const DataSource& source : sources) {
    std::vector<RawRows> slices;
    if (source.splits.empty()) slices.emplace_back(*next++);
    for (const SplitSlice& slice : source.splits) {
      const RawRows whole(*next++);
      const auto [begin, end] = slice.rows_of(whole.size());
      slices.push_back(whole.slice(begin, end));
    }
    const RawRows rows = slices.size() == 1 ? std::move(slices[0]) : RawRows::concatenated(slices);
    parts.push_back(rows.with_columns(map_for(source.columns, rows, source.shared)));
  }
  return parts;
}

RawRows chosen_share(const DataSource& source, RawRows rows) {
  if (!source.share) return rows;
  const auto count = static_cast<std::int64_t>(static_cast<double>(rows.size()) * *source.share);
  if (count == 0)
    fail(ErrorKind::usage,
         {.cause = fmt::format("a share of {} of {} is no row", *source.share, counted(rows.size(), "row")),
          .place = source.files[0],
          .remedy = "Give a larger share, or leave out the source."});
  std::vector<std::int64_t> order = NumpyRandom(source.share_seed).permutation(rows.size());
  order.resize(idx(count));
  return rows.select(order);
}

RawRows mixed_rows(std::vector<RawRows> parts, const MixRequest& request) {
  Counts sizes;
  std::vector<double> fractions, weights;
  for (const RawRows& part : parts) sizes.push_back(part.size());
  for (const DataSource& source : request.sources) {
    if (source.fraction) fractions.push_back(*source.fraction);
    if (source.weight) weights.push_back(*source.weight);
  }
  if (!fractions.empty()) {
    sizes = fraction_sizes(sizes, fractions);
    for (std::size_t s = 0; s < parts.size(); ++s) parts[s] = parts[s].slice(0, sizes[s]);
  }
  const MixStrategy usual = weights.empty() ? MixStrategy::concatenate : MixStrategy::first_exhausted;
  const MixStrategy strategy = request.strategy.value_or(usual);
  const RawRows all = RawRows::concatenated(parts);
  if (strategy == MixStrategy::concatenate) return all;
  return all.select(mixed_order(sizes, {.strategy = strategy, .probabilities = weights, .seed = request.seed}));
}

}  // namespace qtrain
