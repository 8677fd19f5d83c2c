#include "plan/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <span>

#include "core/formats/json_view.h"
#include "core/os/paths.h"
#include "core/plural.h"
#include "core/statistics.h"
#include "core/tensor.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

struct TracedSpan {
  std::string name;
  double begin, end;
  double waited = 0;  ///< of a collective: waiting before `begin` for ranks that reached it later

  double seconds() const { return end - begin; }
  bool is_in(const TracedSpan& other) const { return begin >= other.begin && end <= other.end; }
};

/// The spans of a rank by lane.
struct RankTrace {
  std::vector<TracedSpan> host, exchanges;  ///< in the order in which they began
};

/// The part of a timeline between the ends of two updates.
struct TracedUpdate {
  double begin, end;

  bool holds(const TracedSpan& s) const { return s.begin >= begin && s.end <= end; }
  double seconds() const { return end - begin; }
};

/// Begin and duration in microseconds.
struct EventTime {
  std::int64_t begin, duration;

  static EventTime of(const JsonView& event) {
    constexpr IntegerRange kAny{0, std::int64_t{1} << 53};
    return {event.at("ts").integer(kAny), event.at("dur").integer(kAny)};
  }
};

// Times are relative to the first event, because doubles since 1970 do not resolve microseconds.
std::int64_t first_begin(const JsonView& events) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  events.each([&](const JsonView& e) {
    if (e.at("ph").text() == "X") first = std::min(first, EventTime::of(e).begin);
  });
  return first;
}

// On a GPU, spans show when work was queued.
void require_exchange_lane(bool found, const fs::path& file) {
  if (found) return;
  fail(ErrorKind::input, {.cause = "the timeline has no communication lane: on GPUs it shows only when the host queued "
                                   "work, not how long the work took",
                          .place = file.string(),
                          .remedy = "give the timelines of several ranks on processors (device=cpu)"});
}

void require_whole(const JsonView& trace, const fs::path& file) {
  const auto other = trace.find("otherData");
  const auto count = other ? other->find("dropped_spans") : std::nullopt;
  const std::int64_t dropped = count ? count->integer({0, std::numeric_limits<std::int64_t>::max()}) : 0;
  if (dropped == 0) return;
  fail(ErrorKind::input, {.cause = fmt::format("the timeline overflowed: {} were dropped", counted(dropped, "span")),
                          .place = file.string(),
                          .remedy = "train fewer steps with profile=true, such as max_steps=20"});
}

RankTrace read_rank(const fs::path& file) {
  return reading(file, [&] {
    constexpr double kMicro = 1e-6;
    const Json json = read_json(file);
    require_whole(JsonView(json), file);
    RankTrace trace;
    std::optional<std::int64_t> exchanging;
    const auto is_named = [](const JsonView& e, std::string_view name) { return e.at("name").text() == name; };
    const IntegerRange any{0, std::numeric_limits<std::int32_t>::max()};
    const JsonView events = JsonView(json).at("traceEvents");
    events.each([&](const JsonView& e) {
      if (is_named(e, "thread_name") && e.at("args").at("name").text() == "communication")
        exchanging = e.at("tid").integer(any);
    });
    require_exchange_lane(exchanging.has_value(), file);
    const std::int64_t first = first_begin(events);
    events.each([&](const JsonView& e) {
      if (e.at("ph").text() != "X") return;
      const EventTime t = EventTime::of(e);
      const std::int64_t begin = t.begin - first;
      const bool other = e.at("tid").integer(any) == *exchanging;
      (other ? trace.exchanges : trace.host)
          .push_back({.name = e.at("name").text(),
                      .begin = static_cast<double>(begin) * kMicro,
                      .end = static_cast<double>(begin + t.duration) * kMicro});
    });
    for (auto* lane : {&trace.host, &trace.exchanges})
      std::ranges::stable_sort(*lane, {}, [](const TracedSpan& s) { return std::pair(s.begin, -s.end); });
    return trace;
  });
}

std::vector<RankTrace> read_ranks(const fs::path& folder) {
  std::vector<RankTrace> ranks;
  const auto file = [&] { return folder / fmt::format("trace-rank-{}.json", ranks.size()); };
  while (path_exists(file())) ranks.push_back(read_rank(file()));
  if (ranks.size() > 1) return ranks;
  fail(ErrorKind::input, {.cause = "there are no timelines of several ranks (trace-rank-0.json, trace-rank-1.json)",
                          .place = folder.string(),
                          .remedy = "give the output_dir of a run with profile=true and nproc above 1"});
}

/// The spans of a lane that begin in a step. Steps do not overlap, so that all of them together take linear time.
std::span<const TracedSpan> spans_of(const std::vector<TracedSpan>& lane, const TracedUpdate& u) {
  const auto first = std::ranges::lower_bound(lane, u.begin, {}, &TracedSpan::begin);
  return {first, std::ranges::upper_bound(first, lane.end(), u.end, {}, &TracedSpan::begin)};
}

std::vector<TracedUpdate> updates_of(const RankTrace& rank, const fs::path& folder) {
  std::vector<TracedUpdate> updates;
  std::optional<double> last;
  for (const TracedSpan& s : rank.host) {
    if (s.name != "update") continue;
    if (last && s.end <= *last)
      fail(ErrorKind::input, {.cause = "in a timeline, an update ends before the previous one or with it",
                              .place = folder.string(),
                              .remedy = "run again with profile=true"});
    if (last) updates.push_back({*last, s.end});
    last = s.end;
  }
  return updates;
}

bool does_more(const RankTrace& rank, const TracedUpdate& u) {
  return std::ranges::any_of(spans_of(rank.host, u), [&](const TracedSpan& s) {
    return u.holds(s) && (s.name == "save" || s.name == "evaluate");
  });
}

// By rank, the steps in which all ranks only train.
std::vector<std::vector<TracedUpdate>> plain_updates(const std::vector<RankTrace>& ranks, const fs::path& folder) {
  std::vector<std::vector<TracedUpdate>> all, plain(ranks.size());
  for (const RankTrace& rank : ranks) all.push_back(updates_of(rank, folder));
  const auto fewest = std::ranges::min(all, {}, &std::vector<TracedUpdate>::size).size();
  for (std::size_t i = 0; i < fewest; ++i) {
    bool more = false;
    for (std::size_t r = 0; r < ranks.size(); ++r) more = more || does_more(ranks[r], all[r][i]);
    for (std::size_t r = 0; r < ranks.size() && !more; ++r) plain[r].push_back(all[r][i]);
  }
  return plain;
}

// The duration of a collective is that of the rank that reached it last; the others waited for that rank.
void leave_out_waiting(std::vector<RankTrace>& ranks, const fs::path& folder) {
  std::vector<TracedSpan>& first = ranks.front().exchanges;
  for (const RankTrace& other : ranks)
    if (!std::ranges::equal(other.exchanges, first, {}, &TracedSpan::name, &TracedSpan::name))
      fail(ErrorKind::input, {.cause = "the timelines are from different runs: the ranks' collectives differ",
                              .place = folder.string(),
                              .remedy = "run again with profile=true"});
  for (std::size_t i = 0; i < first.size(); ++i) {
    double least = first[i].seconds();
    for (const RankTrace& other : ranks) least = std::min(least, other.exchanges[i].seconds());
    for (RankTrace& rank : ranks) {
      TracedSpan& own = rank.exchanges[i];
      const double begin = std::max(own.begin, own.end - least);
      own.waited = begin - own.begin;
      own.begin = begin;
    }
  }
  for (RankTrace& rank : ranks) std::ranges::stable_sort(rank.exchanges, {}, &TracedSpan::begin);
}

// Seconds of a step that spans of the lane cover; spans may be nested.
double covered(std::span<const TracedSpan> lane, const TracedUpdate& update) {
  double sum = 0, until = update.begin;
  for (const TracedSpan& s : lane) {
    if (!update.holds(s) || s.end <= until) continue;
    sum += s.end - std::max(s.begin, until);
    until = s.end;
  }
  return sum;
}

const TracedSpan& find_span(std::span<const TracedSpan> lane, const TracedUpdate& update, std::string_view name) {
  const auto found = std::ranges::find_if(
      lane, [&](const TracedSpan& s) { return s.name == name && s.end > update.begin && s.end <= update.end; });
  if (found == lane.end())
    fail(ErrorKind::input, {.cause = fmt::format("in a timeline, a step has no span \"{}\"", name),
                            .remedy = "run again with profile=true"});
  return *found;
}

/// The spans of one name, to find out whether one of them covers another span.
class Covers {
 public:
  Covers(const std::vector<TracedSpan>& lane, std::string_view name) {
    for (const TracedSpan& s : lane)
      if (s.name == name) ends_.emplace_back(s.begin, ends_.empty() ? s.end : std::max(s.end, ends_.back().second));
  }
  bool cover(const TracedSpan& s) const {
    const auto behind = std::ranges::upper_bound(ends_, s.begin, {}, &std::pair<double, double>::first);
    return behind != ends_.begin() && std::prev(behind)->second >= s.end;
  }

 private:
  std::vector<std::pair<double, double>> ends_;  ///< by begin, each with the last end so far
};

/// Number and total duration of spans.
struct SpanSum {
  std::int64_t count = 0;
  double seconds = 0;
};

std::map<std::string, SpanSum> sum_spans(std::span<const TracedSpan> lane, const TracedUpdate& u) {
  std::map<std::string, SpanSum> sums;
  for (const TracedSpan& s : lane)
    if (u.holds(s)) {
      ++sums[s.name].count;
      sums[s.name].seconds += s.seconds();
    }
  return sums;
}

// Only the sums of the loss and of squared gradients are float64; groups of GPUs take them from the first group.
bool is_norm(const TracedSpan& s) {
  return (s.name.starts_with("all_reduce") || s.name.starts_with("broadcast")) && s.name.ends_with(name_of(DType::f64));
}

// How often the schedule runs each collective.
std::map<std::string, std::int64_t> scheduled_calls(const StepExchanges& exchanges, const StepShape& shape) {
  StepCosts nothing;
  nothing.units.resize(exchanges.units.size());
  nothing.blocks.resize(exchanges.units.size() - 1);
  std::map<std::string, std::int64_t> counts;
  for (const SimulatedSpan& span : simulate_step(shape, nothing).spans) {
    if (span.lane != Lane::exchanging || span.unit < 0) continue;
    const StepExchanges::Unit& unit = exchanges.units[static_cast<std::size_t>(span.unit)];
    for (const ExchangeCall& call : unit.of(span.name))
      if (!call.name.empty()) ++counts[call.name];
  }
  return counts;
}

}  // namespace

struct PartReader {
  static std::vector<StepTrace::Part> read(const RankTrace& rank, const std::vector<TracedUpdate>& updates) {
    const Covers micro_batch_ends(rank.host, "add gradients of micro-batch");
    std::vector<StepTrace::Part> parts;
    for (const TracedUpdate& u : updates)
      parts.push_back(read({spans_of(rank.host, u), spans_of(rank.exchanges, u), micro_batch_ends}, u));
    return parts;
  }

 private:
  /// The spans of a step.
  struct StepSpans {
    std::span<const TracedSpan> host, exchanges;
    const Covers& micro_batch_ends;
  };
  static StepTrace::Part read(const StepSpans& step, const TracedUpdate& u) {
    const TracedSpan &sums = find_span(step.host, u, "add gradients"), &own = find_span(step.host, u, "update");
    const auto sum_of = [&](const auto& wanted) {
      double sum = 0;
      for (const TracedSpan& s : step.exchanges)
        if (u.holds(s) && wanted(s)) sum += s.seconds();
      return sum;
    };
    double exchanging = 0;
    for (const TracedSpan& s : step.exchanges)
      if (s.is_in(own)) exchanging += s.waited + s.seconds();
    const auto ends_micro_batch = [&](const TracedSpan& s) { return step.micro_batch_ends.cover(s); };
    return {.spans = means(step.host, u),
            .exchanges = means(step.exchanges, u),
            .whole = u.seconds(),
            .between = u.seconds() - covered(step.host, u),
            .update = own.seconds() - exchanging,
            .step_sum = sum_of([&](const TracedSpan& s) { return s.is_in(sums) && !is_norm(s); }),
            .micro_batch_sum = sum_of(ends_micro_batch),
            // Ranks also agree on a stop this way, before a step begins; that is part of `between`.
            .norm = sum_of([&](const TracedSpan& s) { return is_norm(s) && (s.is_in(sums) || s.is_in(own)); })};
  }

  static std::map<std::string, StepTrace::Mean> means(std::span<const TracedSpan> lane, const TracedUpdate& u) {
    std::map<std::string, StepTrace::Mean> all;
    for (const auto& [name, sum] : sum_spans(lane, u))
      all[name] = {sum.seconds / static_cast<double>(sum.count), sum.count};
    return all;
  }
};

StepTrace StepTrace::read(const fs::path& folder) {
  std::vector<RankTrace> ranks = read_ranks(folder);
  leave_out_waiting(ranks, folder);
  const std::vector<std::vector<TracedUpdate>> updates = plain_updates(ranks, folder);
  if (updates.front().empty())
    fail(ErrorKind::input, {.cause = "the timelines have no second step",
                            .place = folder.string(),
                            .remedy = "train more steps with profile=true, such as max_steps=20"});
  StepTrace t;
  t.folder_ = folder;
  reading(folder, [&] {
    for (std::size_t r = 0; r < ranks.size(); ++r) t.parts_.push_back(PartReader::read(ranks[r], updates[r]));
  });
  return t;
}

void StepTrace::refuse(const std::string& cause) const {
  fail(ErrorKind::input,
       {.cause = cause + ": the timelines are not from a run of this config",
        .place = folder_.string(),
        .remedy = "give the config of that run, with its nproc, zero_stage and gradient_accumulation_steps"});
}

double StepTrace::of(const std::map<std::string, Mean>& lane, const std::string& name) const {
  const auto found = lane.find(name);
  if (found == lane.end()) refuse(fmt::format("they have no span \"{}\"", name));
  return found->second.seconds;
}

ExpectedStep::ExpectedStep(const StepExchanges& all, const StepShape& of)
    : exchanges(all), shape(of), calls(scheduled_calls(all, of)) {}

bool StepTrace::follows(const ExpectedStep& expected, std::int64_t update) const {
  const auto& [exchanges, shape, calls] = expected;
  const bool whole = shape.stage == ZeroStage::none;
  const bool sends =
      !calls.empty() || shape.order == ReductionOrder::micro_batches || shape.beside ||
      std::ranges::any_of(exchanges.step, [](const ExchangeCall& c) { return c.what == Exchange::reduce; });
  for (int r = 0; r < ranks(); ++r) {
    const Part& p = part({r, update});
    const auto count = [](const std::map<std::string, Mean>& lane, const std::string& name) {
      const auto found = lane.find(name);
      return found == lane.end() ? 0 : found->second.count;
    };
    if (count(p.spans, "backward of block 0") != shape.micro_batches) return false;
    if (count(p.spans, "wait for sums") > 0 ? !whole : whole && shape.beside) return false;
    for (const auto& [name, n] : calls)
      if (count(p.exchanges, name) != n) return false;
    for (const auto& [name, mean] : p.exchanges)
      if (!sends && name.starts_with("all_to_all")) return false;
  }
  return true;
}

StepCosts StepTrace::costs(const StepExchanges& exchanges, const StepShape& shape, const UpdateOf& at) const {
  const Part& p = part(at);
  // Unnamed collectives get their share of the total time, by bytes.
  double unnamed = 0;
  for (const StepExchanges::Unit& unit : exchanges.units)
    for (const ExchangeCall& call : unit.reduce) unnamed += call.name.empty() ? call.bytes : 0;
  const bool in_order = shape.order == ReductionOrder::micro_batches;
  const double batches = in_order ? static_cast<double>(shape.micro_batches) : 1;
  const double exchanged = (p.exchanged - (in_order ? p.step_sum : 0)) / batches;
  const auto seconds = [&](const std::vector<ExchangeCall>& calls) {
    double sum = 0;
    for (const ExchangeCall& call : calls)
      sum += call.name.empty() ? exchanged * call.bytes / unnamed : of(p.exchanges, call.name);
    return sum;
  };
  StepCosts costs{.embedding = of(p.spans, "embedding"),
                  .head = of(p.spans, "head"),
                  .embedding_grad = of(p.spans, "gradient of the embedding"),
                  .update = p.update,
                  .norm = p.norm,
                  .between = p.between};
  const bool whole = shape.stage == ZeroStage::none;
  if (whole && (in_order || !shape.beside)) costs.step_sum = p.step_sum;
  if (whole && !shape.beside) costs.micro_batch_sum = p.micro_batch_sum / static_cast<double>(shape.micro_batches);
  for (std::size_t u = 0; u < exchanges.units.size(); ++u) {
    const StepExchanges::Unit& unit = exchanges.units[u];
    costs.units.push_back(
        {.gather = seconds(unit.gather), .reduce = seconds(unit.reduce), .settle = seconds(unit.settle)});
    if (u > 0)
      costs.blocks.push_back({.forward = of(p.spans, fmt::format("forward of block {}", u - 1)),
                              .backward = of(p.spans, fmt::format("backward of block {}", u - 1))});
  }
  return costs;
}

TracedRun traced_run(const StepTrace& trace, const StepExchanges& exchanges, const StepShape& shape) {
  std::vector<double> measured, predicted, norm, computing, waiting;
  const ExpectedStep expected(exchanges, shape);
  for (std::int64_t u = 0; u < trace.updates(); ++u) {
    if (!trace.follows(expected, u)) continue;
    std::vector<StepCosts> ranks;
    for (int r = 0; r < trace.ranks(); ++r) {
      ranks.push_back(trace.costs(exchanges, shape, {r, u}));
      measured.push_back(trace.measured({r, u}));
    }
    const SimulatedStep step = simulate_step(shape, ranks);
    predicted.push_back(step.seconds);
    norm.push_back(ranks.front().norm);
    computing.push_back(step.total(Lane::computing));
    waiting.push_back(step.waiting());
  }
  if (predicted.empty()) trace.refuse("no step matches the predicted schedule");
  return {.ranks = trace.ranks(),
          .updates = std::ssize(predicted),
          .measured = median(std::move(measured)),
          .predicted = median(std::move(predicted)),
          .norm = median(std::move(norm)),
          .computing = median(std::move(computing)),
          .waiting = median(std::move(waiting))};
}

}  // namespace qtrain
