#include "train/estimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "train/cli/arguments.h"

namespace qtrain {
namespace {

constexpr double kGib = 1 << 30;

EstimateOptions options_of(const Arguments& args) {
  EstimateOptions o{.data = args.has("no_data") ? DataUse::ignore : DataUse::read,
                    .mfu = args.number("mfu").value_or(0.4)};
  if (o.mfu <= 0 || o.mfu > 1)
    fail(ErrorKind::usage, {.cause = fmt::format("--mfu is {}", o.mfu), .remedy = "give a share above 0 and up to 1"});
  const auto name = args.text("gpu");
  if (!name) return o;
  o.gpu = find_gpu(*name);
  if (o.gpu) return o;
  std::vector<std::string_view> known;
  for (const GpuModel& gpu : gpu_models()) known.push_back(gpu.name);
  fail(ErrorKind::usage, {.cause = fmt::format("--gpu \"{}\" is not known", *name),
                          .remedy = fmt::format("known are {}", fmt::join(known, ", "))});
}

Json or_null(std::optional<double> x) {
  return x ? Json(*x) : Json();
}

/// What the figures of time and cost are made of.
struct Price {
  std::optional<double> per_hour;

  std::optional<double> of(const Estimate& e) const {
    const auto seconds = e.seconds();
    if (!per_hour || !seconds) return {};
    return *seconds / 3600 * *per_hour;
  }
};

/// Null where the memory of the device is not known.
Json fits_json(const MemoryPlan& plan, const TargetDevice& target) {
  return target.memory > 0 ? Json(fits(plan, target)) : Json();
}

Json json_of(const Estimate& e, const Price& price) {
  Json json{{"device", e.target.name},
            {"device_memory", e.target.memory > 0 ? Json(e.target.memory) : Json()},
            {"ranks", 1},
            {"gradient_checkpointing", e.recompute},
            {"memory", e.memory.json()},
            {"pinned_memory", e.memory.pinned_json()},
            {"fits", fits_json(e.memory, e.target)},
            {"policies", Json::array()},
            {"largest_batch", {{"tokens", e.work.train.tokens}, {"from", e.from_data ? "data" : "max_length"}}},
            {"steps", e.steps ? Json(*e.steps) : Json()},
            {"tokens", or_null(e.tokens)},
            {"flops_per_token", e.flops_per_token},
            {"flops_per_second", or_null(e.flops_per_second)},
            {"seconds", or_null(e.seconds())},
            {"price_per_hour", or_null(price.per_hour)},
            {"cost", or_null(price.of(e))}};
  for (const auto& [name, plan] : e.policies)
    json["policies"].push_back(
        {{"gradient_checkpointing", name}, {"total", plan.total()}, {"fits", fits_json(plan, e.target)}});
  if (e.problem) json["remedy"] = e.problem->remedy;
  return json;
}

void print_memory(const Estimate& e, Log& log) {
  log.result(e.target.memory == 0 ? fmt::format("device                {} (its memory is not known)", e.target.name)
                                  : fmt::format("device                {}, {:.1f} GiB for a run", e.target.name,
                                                static_cast<double>(e.target.memory) / kGib));
  log.result(fmt::format("largest micro-batch   {} tokens, from {}", e.work.train.tokens,
                         e.from_data ? "the data" : "max_length"));
  log.result(fmt::format("recomputation         {}", e.recompute));
  for (const MemoryPlan::Part& p : e.memory.parts)
    log.result(fmt::format("  {:<19} {:>11.2f} MiB", p.name, static_cast<double>(p.bytes) / kMib));
  log.result(fmt::format("  {:<19} {:>11.2f} MiB", "total", static_cast<double>(e.memory.total()) / kMib));
  for (const MemoryPlan::Part& p : e.memory.pinned)
    if (p.bytes > 0)
      log.result(
          fmt::format("  {:<19} {:>11.2f} MiB in the host's memory", p.name, static_cast<double>(p.bytes) / kMib));
  log.result("total under each recompute policy");
  for (const auto& [name, plan] : e.policies)
    log.result(fmt::format("  {:<19} {:>11.2f} MiB{}", name, static_cast<double>(plan.total()) / kMib,
                           fits(plan, e.target) ? "" : ", does not fit"));
}

void print_time(const Estimate& e, const Price& price, Log& log) {
  if (!e.steps) return log.result("steps and time        unknown without data and max_steps");
  log.result(fmt::format("steps                 {}, {:.0f} tokens", *e.steps, *e.tokens));
  if (!e.seconds()) return log.result("time                  unknown for this device");
  log.result(fmt::format("time                  about {} (an estimate: {:.2f} GFLOP a token at {:.2f} TFLOP/s)",
                         format_duration(*e.seconds()), e.flops_per_token / 1e9, *e.flops_per_second / 1e12));
  if (const auto cost = price.of(e)) log.result(fmt::format("cost                  about {:.2f}", *cost));
}

}  // namespace

/// `qtrain estimate`: memory by component, steps, tokens, time and cost, without touching a device.
int run_estimate(const Arguments& args) {
  ResolvedConfig config = load_config(args.operand(0), args.overrides());
  for (const std::string& note : config.notes) args.log().info("{}", note);
  ResolvedConfig anywhere = config;
  anywhere.value.run.device = DeviceChoice::automatic;  // the device need not be here
  require_supported(anywhere);
  const Price price{args.number("price_per_hour")};
  const Estimate e = estimate_run(config, options_of(args), args.log());
  if (args.json()) {
    args.log().result(dump_json(json_of(e, price), 2));
  } else {
    print_memory(e, args.log());
    print_time(e, price, args.log());
  }
  if (!e.problem) return 0;
  args.log().error("{}\n  {}", e.problem->cause, e.problem->remedy);
  return static_cast<int>(ErrorKind::memory);
}

}  // namespace qtrain
