#include "plan/overlap_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/parameters.h"
#include "model/unit_access.h"

namespace qtrain {
namespace {

constexpr int kNoUnit = UnitAccess::kNoUnit;

/// State of the simulation: the lanes, and the buffers for unsharded units.
class StepSimulation {
 public:
  StepSimulation(const StepShape& shape, std::span<const StepCosts> ranks)
      : shape_(shape),
        ranks_(ranks),
        costs_(ranks.front()),
        buffers_(static_cast<std::size_t>(1 + shape.buffers)),
        added_(costs_.units.size()),
        now_(ranks.size()) {}

  SimulatedStep run() {
    if (shape_.gathers_again) find_gathered();
    compute("between", [](const StepCosts& c) { return c.between; });
    for (std::int64_t i = 0; i < shape_.micro_batches; ++i) {
      last_ = i + 1 == shape_.micro_batches;
      forward();
      backward();
      end_micro_batch();
    }
    finish();
    step_.seconds = std::ranges::max(now_);
    return std::move(step_);
  }

 private:
  struct Buffer {
    int unit = kNoUnit;
    double gathered = 0, reduced = 0;  ///< times when this is done
  };

  bool divides_weights() const { return shape_.stage == ZeroStage::weights; }
  bool in_order() const { return shape_.order == ReductionOrder::micro_batches; }
  bool divides_gradients() const { return shape_.stage >= ZeroStage::gradients; }
  std::int64_t layers() const { return std::ssize(costs_.blocks); }
  const StepCosts::Unit& unit(int u) const { return costs_.units[static_cast<std::size_t>(u)]; }
  int units() const { return static_cast<int>(costs_.units.size()); }
  Buffer& buffer_for(int u) { return buffers_[static_cast<std::size_t>(buffer_of(u, shape_.buffers))]; }

  template <class Seconds>
  void compute(std::string name, const Seconds& of) {
    step_.spans.push_back({Lane::computing, std::move(name), now_[0], now_[0] + of(ranks_[0])});
    for (std::size_t r = 0; r < now_.size(); ++r) now_[r] += of(ranks_[r]);
  }
  void compute_block(const char* pass, std::int64_t layer, double StepCosts::Block::*seconds) {
    compute(fmt::format("{} of block {}", pass, layer),
            [&](const StepCosts& c) { return c.blocks[static_cast<std::size_t>(layer)].*seconds; });
  }
  void wait_until(double time) {
    for (double& now : now_) now = std::max(now, time);
  }

  // Runs a collective and returns when it is done.
  double exchange(std::string name, double seconds, int u = kNoUnit) {
    const double begin = std::max(std::ranges::max(now_), exchanged_);
    exchanged_ = begin + seconds;
    step_.spans.push_back({Lane::exchanging, std::move(name), begin, exchanged_, u});
    if (shape_.lane == ExchangeLane::computing) wait_until(exchanged_);
    return exchanged_;
  }
  double gather(int u) { return exchange(fmt::format("gather unit {}", u), unit(u).gather, u); }
  // As GradientExchange::exchange.
  double reduce(int u) {
    const double reduced = exchange(fmt::format("reduce unit {}", u), unit(u).reduce, u);
    return last_ ? exchange(fmt::format("settle unit {}", u), unit(u).settle, u) : reduced;
  }

  void fetch(int u) {
    Buffer& buffer = buffer_for(u);
    if (std::exchange(buffer.unit, u) != u) buffer.gathered = gather(u);
  }

  // As UnitWeights::enter and GradientExchange::enter.
  void enter(const UnitAccess::Entry& entry) {
    Buffer& buffer = buffer_for(entry.unit);
    if (divides_weights()) {
      fetch(entry.unit);
      if (entry.next != kNoUnit && &buffer_for(entry.next) != &buffer) fetch(entry.next);
      wait_until(buffer.gathered);
    }
    if (entry.gradients == UnitAccess::Gradients::no) return;
    wait_until(divides_gradients() ? buffer.reduced : added_[static_cast<std::size_t>(entry.unit)]);
  }

  void finish_gradients(int u) {
    if (divides_gradients())
      buffer_for(u).reduced = reduce(u);
    else if (shape_.beside && (in_order() || last_))
      added_[static_cast<std::size_t>(u)] = reduce(u);
  }

  void run_layer(std::int64_t layer) {
    enter({.unit = unit_of(layer), .next = layer + 1 == layers() ? kNoUnit : unit_of(layer + 1)});
    compute_block("forward", layer, &StepCosts::Block::forward);
  }

  void forward() {
    enter({.unit = kOuterUnit, .next = unit_of(0), .gradients = UnitAccess::Gradients::yes});
    compute("embedding", [](const StepCosts& c) { return c.embedding; });
    for (std::int64_t l = 0; l < layers(); ++l) run_layer(l);
    compute("head", [](const StepCosts& c) { return c.head; });
  }

  std::int64_t first_of_group(std::int64_t layer) const { return layer / shape_.group * shape_.group; }
  bool recomputes_inputs(std::int64_t layer) const {
    return layer % shape_.group == shape_.group - 1 && layer != layers() - 1;
  }

  void backward() {
    for (std::int64_t l = layers(); l-- > 0;) {
      if (recomputes_inputs(l))
        for (std::int64_t first = first_of_group(l); first < l; ++first) run_layer(first);
      int next = kNoUnit;
      if (l > 0) next = unit_of(recomputes_inputs(l - 1) ? first_of_group(l - 1) : l - 1);
      enter({.unit = unit_of(l), .next = next, .gradients = UnitAccess::Gradients::yes});
      compute_block("backward", l, &StepCosts::Block::backward);
      finish_gradients(unit_of(l));
    }
    compute("gradient of the embedding", [](const StepCosts& c) { return c.embedding_grad; });
    finish_gradients(kOuterUnit);
  }

  // Reduces all units and waits for each.
  void reduce_all() {
    if (shape_.stage == ZeroStage::optimizer)
      for (int u = 0; u < units(); ++u) wait_until(reduce(u));
  }

  void end_micro_batch() {
    if (!in_order() || shape_.beside) return;
    if (shape_.stage == ZeroStage::none) wait_until(exchange("gradients", costs_.micro_batch_sum));
    reduce_all();
  }

  void finish() {
    for (const Buffer& buffer : buffers_) wait_until(buffer.reduced);
    for (const double added : added_) wait_until(added);
    if (shape_.stage == ZeroStage::none) wait_until(exchange("gradients", costs_.step_sum));
    if (!in_order() && !shape_.beside) reduce_all();
    wait_until(exchange("sums", costs_.norm));
    compute("update", [](const StepCosts& c) { return c.update; });
    if (shape_.stage == ZeroStage::none) return;
    if (shape_.replicates) replicate();
    if (divides_weights()) return gather_again();
    double all = 0;
    for (int u = 0; u < units(); ++u) all = gather(u);
    wait_until(all);
  }

  void replicate() {
    double all = 0;
    for (int u = 0; u < units(); ++u) all = exchange(fmt::format("replicate unit {}", u), unit(u).replicate, u);
    wait_until(all);
  }

  // The buffers still hold the units gathered in the step before.
  void find_gathered() {
    for (int u = 0; u < units(); ++u) buffer_for(u).unit = u;
  }

  // As Runner::for_each_adapted; the buffers are outdated after the update.
  void gather_again() {
    if (!shape_.gathers_again) return;
    for (Buffer& buffer : buffers_) buffer.unit = kNoUnit;
    for (std::int64_t l = 0; l < layers(); ++l)
      enter({.unit = unit_of(l), .next = l + 1 < layers() ? unit_of(l + 1) : kOuterUnit});
    enter({.unit = kOuterUnit, .next = kNoUnit});
  }

  const StepShape& shape_;
  std::span<const StepCosts> ranks_;
  const StepCosts& costs_;  ///< of the first rank, whose collectives count for all
  std::vector<Buffer> buffers_;
  std::vector<double> added_;  ///< when the unsharded gradients of a unit are reduced
  SimulatedStep step_;
  std::vector<double> now_;  ///< time up to which a rank is busy or waiting
  double exchanged_ = 0;     ///< time up to which the communication lane is busy
  bool last_ = false;        ///< whether this is the last micro-batch of the step
};

}  // namespace

double SimulatedStep::total(Lane lane) const {
  double sum = 0;
  for (const SimulatedSpan& s : spans)
    if (s.lane == lane) sum += s.end - s.begin;
  return sum;
}

SimulatedStep simulate_step(const StepShape& shape, const StepCosts& costs) {
  return simulate_step(shape, std::span(&costs, 1));
}

SimulatedStep simulate_step(const StepShape& shape, std::span<const StepCosts> ranks) {
  check(!ranks.empty() && shape.buffers >= 1 && shape.group >= 1, "a schedule needs at least one rank and one buffer");
  for (const StepCosts& c : ranks)
    check(c.units.size() == c.blocks.size() + 1 && c.blocks.size() == ranks[0].blocks.size(),
          "a schedule needs the costs of every block and of the outer unit");
  return StepSimulation(shape, ranks).run();
}

}  // namespace qtrain
