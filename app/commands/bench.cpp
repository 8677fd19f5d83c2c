#include <fmt/format.h>

#include <algorithm>

#include "app/commands/bench_step.h"
#include "app/commands/commands.h"
#include "app/commands/result_place.h"
#include "bench/cases/measure.h"
#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/os/output_place.h"
#include "core/os/stop.h"
#include "core/version.h"
#include "kernels/cpu/isa.h"

namespace qtrain {
namespace {

using bench::Case;

/// Bytes/s and FLOP/s that this device reached in the copy and the GEMM; 0 if unknown.
struct Limits {
  double bytes = 0, flops = 0;
};

struct Result {
  std::string name;
  double seconds, bytes, flops, text_bytes;
};

Device device_named(const std::string& name) {
  if (name == "cpu" || (name == "auto" && !cuda_problem().empty())) return {};
  if (const std::string problem = cuda_problem(); !problem.empty())
    fail(ErrorKind::usage, {.cause = problem, .remedy = "use --device cpu"});
  return {DeviceKind::cuda, 0};
}

Result measure(Ctx& ctx, const Case& c, const bench::Effort& effort) {
  return {c.name, bench::median_seconds(ctx, c, effort), c.bytes, c.flops, c.text_bytes};
}

/// The cases whose name contains the filter. Throws ErrorKind::usage if there are none, unless the filter matches the
/// copy or the GEMM, which are always measured.
std::vector<Case> chosen_cases(const bench::Sizes& sizes, const std::string& filter) {
  std::vector<Case> all = bench::all_cases(sizes);
  const auto named = [&](const std::string& name) { return name.find(filter) != std::string::npos; };
  std::string some;
  for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(all.size() / 5, 1))
    some += (some.empty() ? "" : ", ") + all[i].name;
  std::erase_if(all, [&](const Case& c) { return !named(c.name); });
  if (all.empty() && !named(bench::copy_case(sizes).name) && !named(bench::gemm_case(sizes).name))
    fail(ErrorKind::usage, {.cause = "no benchmark case has \"" + filter + "\" in its name",
                            .remedy = "give a part of a name, or leave it out to run all cases; some names: " + some});
  return all;
}

Json json_of(const Result& r, const Limits& limits) {
  const auto share = [&](double work, double limit) {
    return work > 0 && limit > 0 ? Json(work / r.seconds / limit) : Json(nullptr);
  };
  return {{"name", r.name},
          {"seconds", r.seconds},
          {"bytes", r.bytes},
          {"flops", r.flops},
          {"bytes_per_second", r.bytes / r.seconds},
          {"flops_per_second", r.flops / r.seconds},
          {"text_bytes_per_second", r.text_bytes / r.seconds},
          {"share_of_copy", share(r.bytes, limits.bytes)},
          {"share_of_gemm", share(r.flops, limits.flops)}};
}

std::string line_of(const Result& r, const Limits& limits) {
  std::string line = fmt::format("{:<46} {:>12.1f} us", r.name, r.seconds * 1e6);
  if (r.bytes > 0)
    line += fmt::format(" {:>10.2f} GB/s  {:>4.0f} % of copy", r.bytes / r.seconds / 1e9,
                        100 * r.bytes / r.seconds / limits.bytes);
  if (r.flops > 0)
    line += fmt::format(" {:>10.3f} TFLOP/s {:>3.0f} % of gemm", r.flops / r.seconds / 1e12,
                        100 * r.flops / r.seconds / limits.flops);
  if (r.text_bytes > 0) line += fmt::format(" {:>10.2f} MB/s of text", r.text_bytes / r.seconds / 1e6);
  return line;
}

}  // namespace

/// `qtrain bench [FILTER]`: measures the cases of bench/cases relative to the speed of a copy and of a large GEMM; also
/// runs `qtrain bench step`.
int run_bench(const Arguments& args) {
  if (args.has("nvtx")) nvtx::start();
  if (!args.operands().empty() && args.operand(0) == "step") return run_bench_step(args);
  const bool has_keys = std::ranges::any_of(args.overrides(), [&](const auto& o) { return !args.has(o.first); });
  if (args.operands().size() > 1 || has_keys)
    fail(ErrorKind::usage, {.cause = "a second argument and config keys only work with `qtrain bench step`",
                            .remedy = "give one part of a case's name, or `step` followed by a case or a config"});
  const Device device = device_named(args.device());
  const bool small = args.has("small");
  bench::Sizes sizes = small ? bench::small_sizes(device) : bench::sizes_for(device);
  if (const auto dtype = args.text("dtype")) sizes.dtype = dtype_named(*dtype);
  const bool halves = device.kind == DeviceKind::cpu && sizes.dtype == DType::bf16;
  const bench::Effort effort = small ? bench::Effort{0, 0} : bench::effort_for(device);
  const std::string filter = args.operands().empty() ? "" : args.operand(0);
  const std::vector<Case> cases = chosen_cases(sizes, filter);
  Ctx ctx(device, halves ? MatmulPrecision::bf16 : MatmulPrecision::storage,
          static_cast<int>(args.integer("threads").value_or(0)));

  const Result copy = measure(ctx, bench::copy_case(sizes), effort);
  const Result gemm = measure(ctx, bench::gemm_case(sizes), effort);
  const Limits limits{copy.bytes / copy.seconds, gemm.flops / gemm.seconds};
  const std::string name = device.kind == DeviceKind::cuda ? cuda_info().name : describe_cpu();
  args.log().result(fmt::format("{}, operands in {}", name, name_of(sizes.dtype)));
  Json json{{"version", kVersion},
            {"device", name},
            {"dtype", name_of(sizes.dtype)},
            {"filter", filter},
            {"results", Json::array()}};
  std::optional<ResultFile> file = result_file(args, "json");
  const auto write = [&] {
    write_file(file->place_now(), dump_json(json, 2) + "\n");
    file->written();
  };
  const bool once = file && output_place(*args.text("json")).mode == WriteMode::in_place;
  const auto report = [&](const Result& r) {  // written after each case, so that a stopped run keeps its results
    args.log().result(line_of(r, limits));
    json["results"].push_back(json_of(r, limits));
    if (file && !once) write();
  };
  report(copy);
  report(gemm);
  for (const Case& c : cases) {
    throw_if_stopped();
    report(measure(ctx, c, effort));
  }
  finish_or_stop();
  if (once) write();
  args.give({.text = "", .json = std::move(json)});
  return 0;
}

}  // namespace qtrain
