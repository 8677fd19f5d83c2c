#include "plan/estimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "app/cli/hub_arguments.h"
#include "app/cli/program.h"
#include "app/commands/commands.h"
#include "app/commands/estimate_time.h"
#include "app/commands/ranged_text.h"
#include "app/commands/ranks_text.h"
#include "config/check.h"
#include "config/hub_names.h"
#include "config/remarks.h"
#include "core/plural.h"
#include "train/setup/compute.h"

namespace qtrain {
namespace {

constexpr double kGib = 1 << 30;

void require(bool holds, const std::string& cause, const std::string& remedy) {
  if (!holds) fail(ErrorKind::usage, {.cause = cause, .remedy = remedy});
}

NetworkOptions network_of(const Arguments& args) {
  constexpr double kMinGbps = 0.001;
  NetworkOptions o{.gbps = args.number("network_gbps")};
  require(o.gbps.value_or(1) >= kMinGbps, fmt::format("--network_gbps is {}", o.gbps.value_or(0)),
          fmt::format("give a number of at least {}", kMinGbps));
  if (const auto how = args.text("collectives"))
    o.collectives = *how == "ring" ? Collectives::ring : *how == "tree" ? Collectives::tree : Collectives::usual;
  if (const auto overlap = args.text("overlap"))
    o.lane = *overlap == "yes" ? ExchangeLane::own : ExchangeLane::computing;
  return o;
}

// Applies --nodes and --gpus_per_node to the config.
void set_layout(ResolvedConfig& config, const Arguments& args) {
  constexpr std::int64_t kUsual = 8, kMaxNodes = 65536, kMaxPerNode = 4096, kMaxRanks = 1 << 20;
  const auto nodes = args.integer("nodes"), per_node = args.integer("gpus_per_node");
  RunSection& run = config.value.run;
  require(nodes || !per_node, "--gpus_per_node only works together with --nodes", "give --nodes too, or nproc=N");
  if (!nodes) return;
  require(*nodes >= 1 && *nodes <= kMaxNodes, fmt::format("--nodes is {}", *nodes),
          fmt::format("give a number from 1 to {}", kMaxNodes));
  require(!config.given("nnodes") || run.nnodes == *nodes,
          fmt::format("--nodes is {}, but nnodes is {}", *nodes, run.nnodes), "give only one of them");
  const bool counted = config.given("nproc") && run.nproc > 1;
  require(!per_node || !counted || run.nproc == *per_node,
          fmt::format("--gpus_per_node is {}, but nproc is {}", per_node.value_or(0), run.nproc),
          "give only one of them");
  run.nnodes = *nodes;
  run.nproc = per_node.value_or(counted ? run.nproc : kUsual);
  require(run.nproc >= 1 && run.nproc <= kMaxPerNode, fmt::format("--gpus_per_node is {}", run.nproc),
          fmt::format("give a number from 1 to {}", kMaxPerNode));
  require(run.nnodes * run.nproc <= kMaxRanks,
          fmt::format("{} nodes with {} GPUs each are {} ranks", run.nnodes, run.nproc, run.nnodes * run.nproc),
          fmt::format("use at most {} ranks", kMaxRanks));
}

// Refuses flags that would have no effect.
void require_use(const Config& config, const Arguments& args) {
  const bool several = config.run.ranks() > 1;
  require(!args.has("network_gbps") || config.run.nnodes > 1, "--network_gbps needs more than one node",
          "give --nodes with a number above 1");
  for (const char* flag : {"collectives", "overlap", "trace"})
    require(!args.has(flag) || several, fmt::format("--{} needs more than one rank", flag),
            "give --nodes, or nproc above 1");
  for (const char* flag : {"gpu", "nodes"})
    require(!args.has("trace") || !args.has(flag),
            fmt::format("--trace describes a finished run, --{} a different one", flag), "give only one of them");
}

EstimateOptions options_of(const Arguments& args) {
  EstimateOptions o{.data = args.has("no_data") ? DataUse::ignore : DataUse::read,
                    .mfu = args.number("mfu"),
                    .network = network_of(args)};
  if (const auto folder = args.text("trace")) o.timelines = *folder;
  const double mfu = o.mfu.value_or(1);
  require(mfu > 0 && mfu <= 1, fmt::format("--mfu is {}", mfu), "give a fraction above 0 and at most 1");
  const auto name = args.text("gpu");
  if (!name) return o;
  o.gpu = find_gpu(*name);
  if (o.gpu) return o;
  std::vector<std::string_view> known;
  for (const GpuModel& gpu : gpu_models()) known.push_back(gpu.name);
  fail(ErrorKind::usage, {.cause = fmt::format("unknown GPU \"{}\" in --gpu", *name),
                          .remedy = fmt::format("known GPUs are {}", fmt::join(known, ", "))});
}

/// An estimate needs config.json of the model, but not its weights.
void require_model(const ResolvedConfig& config) {
  for (const NamedOnHub& named : config.hub_names) {
    if (named.place || named.name.kind != RepoKind::model) continue;
    ErrorText text = not_found(named);
    text.remedy = "add --fetch to fetch config.json";
    fail(ErrorKind::input, std::move(text));
  }
}

void ignore_absent_rows(const ResolvedConfig& config, EstimateOptions& options, Log& log) {
  for (const NamedOnHub& named : config.hub_names) {
    if (named.place || options.data == DataUse::ignore) continue;
    log.warn("{} is not on this machine: all rows are assumed to be max_length tokens long; --fetch fetches them",
             named.name.text());
    options.data = DataUse::ignore;
  }
}

Json or_null(std::optional<double> x) {
  return x ? Json(*x) : Json();
}

/// Null if the memory of the device is unknown.
Json fits_json(const MemoryPlan& plan, const TargetDevice& target) {
  return target.memory > 0 ? Json(fits(plan, target)) : Json();
}

Json way_json(const WayToFit& way, const Estimate& e) {
  return {{"changes", json_of(way.changes)},       {"total", way.bytes},
          {"saves", e.memory.total() - way.bytes}, {"slowdown", e.step_time ? Json(way.slowdown) : Json()},
          {"same_result", way.same_result},        {"costs", way.costs}};
}

Json json_of(const Estimate& e, const Price& price) {
  std::optional<Ranged<double>> flops;
  if (e.speed) flops = e.speed->map([](const DeviceSpeed& s) { return s.flops; });
  Json json{{"device", e.target.name},
            {"device_memory", e.target.memory > 0 ? Json(e.target.memory) : Json()},
            {"ranks", e.ranks},
            {"gradient_checkpointing", e.recompute.name()},
            {"memory", e.memory.json()},
            {"pinned_memory", e.memory.pinned_json()},
            {"fits", fits_json(e.memory, e.target)},
            {"policies", Json::array()},
            {"largest_batch", {{"tokens", e.work.train.tokens}, {"from", e.from_data ? "data" : "max_length"}}},
            {"steps", e.steps ? Json(*e.steps) : Json()},
            {"tokens", or_null(e.tokens)},
            {"flops_per_token", e.flops_per_token},
            {"flops_per_second", usual_json(flops)},
            {"flops_per_second_range", range_json(flops)},
            {"seconds", usual_json(e.seconds())},
            {"seconds_range", range_json(e.seconds())},
            {"price_per_hour", or_null(price.per_hour)},
            {"cost", usual_json(price.of(e))},
            {"cost_range", range_json(price.of(e))}};
  json["optional_copies"] = {{"bytes", e.memory.total() - e.least}, {"keys", e.copies}};
  json["gpus"] = Json::object();
  for (const GpuVerdict& gpu : e.gpus) json["gpus"][gpu.gpu->name] = gpu.can();
  json["tokens_per_second"] = usual_json(e.tokens_per_second());
  json["tokens_per_second_range"] = range_json(e.tokens_per_second());
  json["limit"] = e.limit().empty() ? Json() : Json(e.limit());
  json["update"] = e.step_time ? step_json(*e.step_time) : Json();
  json["cards"] = Json::array();
  for (const GpuVerdict& card : e.gpus) json["cards"].push_back(card_json(card));
  json["remarks"] = e.remarks;
  json["ways_to_fit"] = Json::array();
  for (const WayToFit& way : e.ways) json["ways_to_fit"].push_back(way_json(way, e));
  json["refused_on_gpus"] = e.refused_on_gpus.empty() ? Json() : Json(e.refused_on_gpus);
  for (const auto& [policy, plan] : e.policies)
    json["policies"].push_back(
        {{"gradient_checkpointing", policy.name()}, {"total", plan.total()}, {"fits", fits_json(plan, e.target)}});
  json["of_ranks"] = e.of_ranks ? ranks_json(*e.of_ranks) : Json();
  if (e.traced) json["timeline"] = trace_json(*e.traced);
  if (e.problem) {
    json["remedy"] = e.problem->remedy;
    json["error"] = error_json({ErrorKind::memory, *e.problem});
  }
  return json;
}

std::string memory_text(const Estimate& e) {
  const auto mib = [](std::string_view name, std::size_t bytes, std::string_view remark) {
    const bool small = bytes < kMib / 100;
    const double kib = std::ceil(static_cast<double>(bytes) / 1024);
    return fmt::format("  {:<19} {:>11.2f} {}{}\n", name, small ? kib : static_cast<double>(bytes) / kMib,
                       small ? "KiB" : "MiB", remark);
  };
  std::string text = e.target.memory == 0
                         ? fmt::format("device                {} (memory size unknown)\n", e.target.name)
                         : fmt::format("device                {}, {:.1f} GiB usable\n", e.target.name,
                                       static_cast<double>(e.target.memory) / kGib);
  text += fmt::format("largest micro-batch   {}, from {}{}\n", counted(e.work.train.tokens, "token"),
                      e.from_data ? "the data" : "max_length",
                      e.sharing > 1 ? fmt::format(", shared by {} ranks", e.sharing) : "");
  text += fmt::format("recomputation         {}\n", e.recompute.name());
  for (const MemoryPlan::Part& p : e.memory.parts)
    if (p.bytes > 0) text += mib(p.name, p.bytes, "");
  text += mib("total", e.memory.total(), "");
  if (!e.copies.empty())
    text += mib("without copies", e.least,
                fmt::format(": optional copies of weights are kept because there is room ({}=false turns them off)",
                            fmt::join(e.copies, "=false ")));
  for (const MemoryPlan::Part& p : e.memory.pinned)
    if (p.bytes > 0) text += mib(p.name, p.bytes, " in host memory");
  text += "total with each recompute policy\n";
  for (const auto& [policy, plan] : e.policies)
    text += mib(policy.name(), plan.total(), fits(plan, e.target) ? "" : ", does not fit");
  return text;
}

std::string list_text(std::string_view label, std::vector<std::string> names) {
  if (names.empty()) names.emplace_back("none");
  for (std::size_t i = 0; i + 1 < names.size(); ++i) names[i] += ",";
  return words_text(label, names);
}

/// The GPU models that can do the run, even if it is for a processor: users ask what to buy or rent.
std::string gpus_text(const Estimate& e) {
  if (!e.refused_on_gpus.empty()) return words_text("on GPUs", words_of("refused: " + e.refused_on_gpus));
  std::vector<std::string> fit, not_fit, too_old;
  for (const GpuVerdict& verdict : e.gpus) {
    const GpuModel& gpu = *verdict.gpu;
    const bool lacks_types = gpu.has_kernels() && !verdict.has_types;
    (!gpu.has_kernels() ? too_old
     : verdict.can()    ? fit
                        : not_fit)
        .push_back(gpu.name + (lacks_types ? " (no bfloat16)" : ""));
  }
  return list_text("fits on", std::move(fit)) + list_text("does not fit on", std::move(not_fit)) +
         list_text("no kernels for", std::move(too_old));
}

std::string remarks_text(const Estimate& e) {
  std::string text;
  for (const std::string& remark : e.remarks) text += words_text("remark", words_of(remark));
  return text;
}

/// The cheapest changes that fit; each was planned.
std::string ways_text(const Estimate& e) {
  if (!e.problem && !e.has_little_room()) return "";
  const double share = 100 * static_cast<double>(e.least) / static_cast<double>(e.target.memory);
  std::string text = e.problem ? fmt::format("does not fit          needs {:.0f} % of the memory\n", share)
                               : fmt::format("little room           uses {:.0f} % of the memory\n", share);
  if (e.ways.empty()) return text + "  no known change is enough\n";
  text += fmt::format("the cheapest changes that {}, each planned\n", e.problem ? "fit" : "leave more room");
  for (const WayToFit& way : e.ways) {
    std::string costs = e.step_time ? fmt::format("takes about {:.2f} times as long", way.slowdown) : "";
    if (!way.costs.empty()) costs += fmt::format("{}{}", costs.empty() ? "" : "; ", way.costs);
    text += words_text(fmt::format("  saves {:.0f} MiB", static_cast<double>(e.memory.total() - way.bytes) / kMib),
                       words_of(text_of(way.changes)));
    if (!costs.empty()) text += words_text("", words_of(costs));
  }
  return text;
}

}  // namespace

/// `qtrain estimate`: memory by component, steps, tokens, time and cost, without using a device.
int run_estimate(const Arguments& args) {
  ResolvedConfig config = load_config(args.operand(0), args.overrides());
  if (args.has("fetch"))
    config = load_run_config(args, args.operand(0), {.model = ModelFiles::config, .rows = !args.has("no_data")});
  require_model(config);
  set_layout(config, args);
  require_use(config.value, args);
  tell_remarks(config, args.log());
  EstimateOptions options = options_of(args);
  ignore_absent_rows(config, options, args.log());
  if (!args.has("gpu") && !args.has("nodes")) settle_ranks(config);
  require_supported(config, place_of_run(config.value, options));
  const Price price{args.number("price_per_hour")};
  const Estimate e = estimate_run(config, options, args.log());
  std::string text = memory_text(e) + gpus_text(e);
  if (e.of_ranks) text += ranks_text(*e.of_ranks);
  if (e.traced) text += trace_text(*e.traced);
  if (args.has("cards")) {
    if (!e.refused_on_gpus.empty()) fail(ErrorKind::usage, {.cause = "no GPU can do this run: " + e.refused_on_gpus});
    args.give({.text = cards_text(e), .json = json_of(e, price)});
    return 0;
  }
  args.give(
      {.text = text + time_text(e, config.value, price) + remarks_text(e) + ways_text(e), .json = json_of(e, price)});
  if (!e.problem) return 0;
  args.log().error("{}\n  {}", e.problem->cause, e.problem->remedy);
  return static_cast<int>(ErrorKind::memory);
}

}  // namespace qtrain
