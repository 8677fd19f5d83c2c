#include "train/plan/estimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <iterator>
#include <sstream>

#include "app/cli/program.h"
#include "app/commands/commands.h"
#include "app/commands/ranks_text.h"
#include "config/check.h"
#include "config/remarks.h"
#include "core/plural.h"
#include "train/plan/compute.h"

namespace qtrain {
namespace {

constexpr double kGib = 1 << 30;

void require(bool holds, const std::string& cause, const std::string& remedy) {
  if (!holds) fail(ErrorKind::usage, {.cause = cause, .remedy = remedy});
}

NetworkOptions network_of(const Arguments& args) {
  constexpr double kLeastGbps = 0.001;
  NetworkOptions o{.gbps = args.number("network_gbps")};
  require(o.gbps.value_or(1) >= kLeastGbps, fmt::format("--network_gbps is {}", o.gbps.value_or(0)),
          fmt::format("give a number from {} on", kLeastGbps));
  if (const auto how = args.text("collectives"))
    o.collectives = *how == "ring" ? Collectives::ring : *how == "tree" ? Collectives::tree : Collectives::usual;
  if (const auto overlap = args.text("overlap"))
    o.lane = *overlap == "yes" ? ExchangeLane::own : ExchangeLane::computing;
  return o;
}

// A run of another size than the config says.
void set_layout(ResolvedConfig& config, const Arguments& args) {
  constexpr std::int64_t kUsual = 8, kMaxNodes = 65536, kMaxPerNode = 4096, kMaxRanks = 1 << 20;
  const auto nodes = args.integer("nodes"), per_node = args.integer("gpus_per_node");
  RunSection& run = config.value.run;
  require(nodes || !per_node, "--gpus_per_node says how many GPUs each of --nodes has", "give --nodes too, or nproc=N");
  if (!nodes) return;
  require(*nodes >= 1 && *nodes <= kMaxNodes, fmt::format("--nodes is {}", *nodes),
          fmt::format("give a number from 1 to {}", kMaxNodes));
  require(!config.given("nnodes") || run.nnodes == *nodes,
          fmt::format("--nodes is {} and nnodes is {}", *nodes, run.nnodes), "give one of them");
  const bool counted = config.given("nproc") && run.nproc > 1;
  require(!per_node || !counted || run.nproc == *per_node,
          fmt::format("--gpus_per_node is {} and nproc is {}", per_node.value_or(0), run.nproc), "give one of them");
  run.nnodes = *nodes;
  run.nproc = per_node.value_or(counted ? run.nproc : kUsual);
  require(run.nproc >= 1 && run.nproc <= kMaxPerNode, fmt::format("--gpus_per_node is {}", run.nproc),
          fmt::format("give a number from 1 to {}", kMaxPerNode));
  require(run.nnodes * run.nproc <= kMaxRanks,
          fmt::format("{} nodes of {} are {} ranks", run.nnodes, run.nproc, run.nnodes * run.nproc),
          fmt::format("ask for {} at most", kMaxRanks));
}

// Flags that would do nothing.
void require_use(const Config& config, const Arguments& args) {
  const bool several = config.run.ranks() > 1;
  require(!args.has("network_gbps") || config.run.nnodes > 1, "--network_gbps is about a network between nodes",
          "give --nodes with a number above 1");
  for (const char* flag : {"collectives", "overlap", "trace"})
    require(!args.has(flag) || several, fmt::format("--{} is about several ranks, and there is one", flag),
            "give --nodes, or nproc above 1");
  for (const char* flag : {"gpu", "nodes"})
    require(!args.has("trace") || !args.has(flag),
            fmt::format("--trace is about a run that was made, --{} about another", flag), "give one of them");
}

EstimateOptions options_of(const Arguments& args) {
  EstimateOptions o{.data = args.has("no_data") ? DataUse::ignore : DataUse::read,
                    .mfu = args.number("mfu").value_or(0.4),
                    .network = network_of(args)};
  if (const auto folder = args.text("trace")) o.timelines = *folder;
  require(o.mfu > 0 && o.mfu <= 1, fmt::format("--mfu is {}", o.mfu), "give a share above 0 and up to 1");
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

/// Seconds of an update of one rank.
Json step_json(const StepTime& t) {
  return {{"seconds", t.seconds()}, {"computing", t.computing}, {"memory_traffic", t.memory},
          {"host_traffic", t.host}, {"loading", t.loading},     {"update_of_weights", t.update}};
}

Json way_json(const WayToFit& way, const Estimate& e) {
  return {{"changes", json_of(way.changes)},       {"total", way.bytes},
          {"saves", e.memory.total() - way.bytes}, {"slowdown", e.step_time ? Json(way.slowdown) : Json()},
          {"same_result", way.same_result},        {"costs", way.costs}};
}

Json card_json(const GpuVerdict& card) {
  return {{"name", card.gpu->name},
          {"runs", card.has_types},
          {"changes", card.needs_fp16 ? Json{{"bf16", false}, {"fp16", true}} : Json::object()},
          {"lacks", card.gpu->lacks()},
          {"source", card.gpu->source},
          {"fits", card.fits},
          {"total", card.bytes},
          {"memory", card.memory},
          {"gradient_checkpointing", card.recompute.name()},
          {"tokens_per_second", card.tokens_per_second},
          {"seconds", or_null(card.seconds)},
          {"limit", card.fits ? card.limit : "memory size"}};
}

Json json_of(const Estimate& e, const Price& price) {
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
            {"flops_per_second", or_null(e.flops_per_second)},
            {"seconds", or_null(e.seconds())},
            {"price_per_hour", or_null(price.per_hour)},
            {"cost", or_null(price.of(e))}};
  json["optional_copies"] = {{"bytes", e.memory.total() - e.least}, {"keys", e.copies}};
  json["gpus"] = Json::object();
  for (const GpuVerdict& gpu : e.gpus) json["gpus"][gpu.gpu->name] = gpu.can();
  json["tokens_per_second"] = or_null(e.tokens_per_second());
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
                         ? fmt::format("device                {} (its memory is not known)\n", e.target.name)
                         : fmt::format("device                {}, {:.1f} GiB for a run\n", e.target.name,
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
                fmt::format(": copies of weights are kept only because there is room ({}=false leaves them out)",
                            fmt::join(e.copies, "=false ")));
  for (const MemoryPlan::Part& p : e.memory.pinned)
    if (p.bytes > 0) text += mib(p.name, p.bytes, " in the host's memory");
  text += "total under each recompute policy\n";
  for (const auto& [policy, plan] : e.policies)
    text += mib(policy.name(), plan.total(), fits(plan, e.target) ? "" : ", does not fit");
  return text;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

/// Words behind a label, on lines of a terminal.
std::string words_text(std::string_view label, const std::vector<std::string>& words) {
  constexpr std::size_t kWidth = 79;
  std::string text, line = fmt::format("{:<21}", label);
  for (const std::string& word : words) {
    if (line.size() + 1 + word.size() > kWidth) {
      text += line + "\n";
      line = std::string(21, ' ');
    }
    line += " " + word;
  }
  return text + line + "\n";
}

std::string list_text(std::string_view label, std::vector<std::string> names) {
  if (names.empty()) names.emplace_back("none");
  for (std::size_t i = 0; i + 1 < names.size(); ++i) names[i] += ",";
  return words_text(label, names);
}

/// The run on every card.
std::string cards_text(const Estimate& e) {
  std::string text = fmt::format("{:<22} {:>9} {:>8} {:<4} {:>8} {:>10} {}\n", "card", "needs MiB", "has MiB", "fits",
                                 "tokens/s", "time", "with");
  for (const GpuVerdict& c : e.gpus) {
    const bool can = c.fits && (c.has_types || c.needs_fp16);
    text += fmt::format("{:<22} {:>9.0f} {:>8.0f} {:<4} {:>8} {:>10}{}\n", c.gpu->name,
                        static_cast<double>(c.bytes) / kMib, static_cast<double>(c.memory) / kMib,
                        !c.gpu->has_kernels() ? "old"
                        : c.fits              ? "yes"
                                              : "no",
                        can ? fmt::format("{:.0f}", c.tokens_per_second) : "-",
                        can && c.seconds ? format_duration(*c.seconds) : "-", c.needs_fp16 ? " fp16=true" : "");
  }
  return text + "predicted, not measured: plans of memory, and time by what data sheets say\n" +
         words_text("old:", words_of("the kernels need compute capability 7.5 (Turing) or newer"));
}

/// Which kinds of GPU can do the run, also where it is one for a processor: people ask what to buy or rent.
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

std::string seconds_text(double seconds) {
  return seconds < 0.1 ? fmt::format("{:.2g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

/// What an update takes, and what that hangs on.
std::string speed_text(const Estimate& e) {
  if (!e.step_time) return "";
  const StepTime& t = *e.step_time;
  std::vector<std::string> parts;
  for (const auto& [name, seconds] :
       {std::pair("compute", t.computing), std::pair("memory traffic", t.memory), std::pair("host link", t.host),
        std::pair("data loading", t.loading), std::pair("update of the weights", t.update)})
    if (seconds > 0) parts.push_back(fmt::format("{} {}", name, seconds_text(seconds)));
  return words_text("limited by", words_of(fmt::format("{}; of an update: {}", e.limit(), fmt::join(parts, ", "))));
}

/// People expect fewer steps of less accumulation.
std::string accumulation_text(const Config& config) {
  const TrainingSection& t = config.training;
  if (t.gradient_accumulation_steps == 1) return "";
  const std::string what =
      t.max_steps > 0
          ? fmt::format("would be the same steps over 1/{} of the tokens", t.gradient_accumulation_steps)
          : fmt::format("would be {} times as many steps over the same tokens", t.gradient_accumulation_steps);
  return words_text("", words_of("gradient_accumulation_steps=1 " + what));
}

std::string time_text(const Estimate& e, const Config& config, const Price& price) {
  std::string text;
  if (const auto speed = e.tokens_per_second())
    text += fmt::format("speed                 about {:.0f} tokens/s\n", *speed) + speed_text(e);
  if (!e.steps) return text + "steps and time        unknown without data and max_steps\n";
  text +=
      fmt::format("steps                 {}, {:.0f} {}\n", *e.steps, *e.tokens, *e.tokens == 1 ? "token" : "tokens");
  text += accumulation_text(config);
  if (!e.seconds()) return text + "time                  unknown for this device\n";
  text += fmt::format("time                  about {} ({:.2g} GFLOP a token at {:.3g} TFLOP/s)\n",
                      format_duration(*e.seconds()), e.flops_per_token / 1e9, *e.flops_per_second / 1e12);
  if (const auto cost = price.of(e)) text += fmt::format("cost                  about {:.2f}\n", *cost);
  return text;
}

std::string remarks_text(const Estimate& e) {
  std::string text;
  for (const std::string& remark : e.remarks) text += words_text("remark", words_of(remark));
  return text;
}

/// The cheapest ways to fit; each was planned.
std::string ways_text(const Estimate& e) {
  if (!e.problem && !e.has_little_room()) return "";
  const double share = 100 * static_cast<double>(e.least) / static_cast<double>(e.target.memory);
  std::string text = e.problem ? fmt::format("does not fit          {:.0f} % of the memory there is\n", share)
                               : fmt::format("little room           {:.0f} % of the memory is taken\n", share);
  if (e.ways.empty()) return text + "  nothing that could be changed is enough\n";
  text += fmt::format("the cheapest ways to {}, each planned with the change\n", e.problem ? "fit" : "have more");
  for (const WayToFit& way : e.ways) {
    std::string costs = e.step_time ? fmt::format("{:.2f} times the time", way.slowdown) : "";
    if (!way.costs.empty()) costs += fmt::format("{}{}", costs.empty() ? "" : "; ", way.costs);
    text += words_text(fmt::format("  saves {:.0f} MiB", static_cast<double>(e.memory.total() - way.bytes) / kMib),
                       words_of(text_of(way.changes)));
    if (!costs.empty()) text += words_text("", words_of(costs));
  }
  return text;
}

}  // namespace

/// `qtrain estimate`: memory by component, steps, tokens, time and cost, without touching a device.
int run_estimate(const Arguments& args) {
  ResolvedConfig config = load_config(args.operand(0), args.overrides());
  set_layout(config, args);
  require_use(config.value, args);
  tell_remarks(config, args.log());
  const EstimateOptions options = options_of(args);
  if (!args.has("gpu") && !args.has("nodes")) settle_ranks(config);
  require_supported(config, place_of_run(config.value, options));
  const Price price{args.number("price_per_hour")};
  const Estimate e = estimate_run(config, options, args.log());
  std::string text = memory_text(e) + gpus_text(e);
  if (e.of_ranks) text += ranks_text(*e.of_ranks);
  if (e.traced) text += trace_text(*e.traced);
  if (args.has("cards")) {
    if (!e.refused_on_gpus.empty()) fail(ErrorKind::usage, {.cause = "no card can do this run: " + e.refused_on_gpus});
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
