#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/commands/commands.h"
#include "app/commands/result_place.h"
#include "convert/merge.h"
#include "model/model_source.h"
#include "report/metrics.h"
#include "train/setup/compute.h"
#include "train/step/model_loss.h"

namespace qtrain {
namespace {

// Parses --weights 0.7,0.3: one number per --adapter.
std::vector<double> read_weights(const std::string& text) {
  std::vector<double> weights;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    std::size_t used = 0;
    try {
      weights.push_back(std::stod(word, &used));
    } catch (const std::logic_error&) {
      used = 0;
    }
    if (word.empty() || used != word.size() || !std::isfinite(weights.back()))
      fail(ErrorKind::usage, {.cause = fmt::format("--weights: \"{}\" is not a number", word),
                              .remedy = "give numbers separated by commas: --weights 0.7,0.3"});
    begin = end + 1;
  }
  return weights;
}

MergeOptions merge_options(const Arguments& args) {
  MergeOptions options{
      .model = model_folder(args.required("model")), .output = args.required("output"), .log = &args.log()};
  (void)args.required("adapter");
  const std::vector<std::string> folders = args.all("adapter");
  std::vector<double> weights(folders.size(), 1.0);
  if (const auto text = args.text("weights")) weights = read_weights(*text);
  if (weights.size() != folders.size())
    fail(ErrorKind::usage,
         {.cause = fmt::format("--weights has {} numbers for {} adapters", weights.size(), folders.size()),
          .remedy = "give one number for each --adapter"});
  if (const auto dtype = args.text("dtype"); dtype && *dtype != "auto") options.dtype = dtype_named(*dtype);
  for (std::size_t i = 0; i < folders.size(); ++i) options.adapters.push_back({folders[i], weights[i]});
  return options;
}

// A bfloat16 weight has 8 significant bits: an adapter's update can be smaller than half a unit in the last place.
void say_rounding(Log& log, const MergeReport& report) {
  constexpr double kMuch = 0.1;
  if (report.lost() < kMuch)
    log.info("rounding the merged weights lost {:.2g} % of the adapter's update", 100 * report.lost());
  else
    log.warn("rounding the merged weights lost {:.0f} % of the adapter's update; --dtype float32 keeps all of it",
             100 * report.lost());
}

struct LossOf {
  std::string model;
  std::optional<std::string> adapter = {};
};

double loss_on(Ctx& ctx, const Arguments& args, const LossOf& of) {
  const Json keys{{"model_name_or_path", of.model}, {"eval_dataset_name", args.required("data")}};
  const ResolvedConfig config = parse_config(dump_json(keys), "--data");
  return model_loss(ctx, {.config = config.value, .adapter = of.adapter}, args.log()).evaluation.loss();
}

/// Losses on the rows of --data: of the merged model, and of the adapter on its base for comparison.
class LossCheck {
 public:
  LossCheck(Ctx& ctx, const Arguments& args, const MergeOptions& options) : ctx_(ctx), args_(args), options_(options) {
    losses_.merged = loss_on(ctx, args, {.model = options.output.string()});
    const MergedAdapter& first = options.adapters.front();
    if (options.adapters.size() > 1 || first.weight != 1) return;
    losses_.adapter = loss_on(ctx, args, {.model = options.model.string(), .adapter = first.folder.string()});
    has_adapter_ = true;
  }

  Json json() const {
    Json out{{"merged_eval_loss", finite_or_null(losses_.merged)}};
    if (has_adapter_) out["adapter_eval_loss"] = finite_or_null(losses_.adapter);
    return out;
  }

  void require_same(const MergeReport& report) {
    if (!has_adapter_ || explained_by_rounding(losses_, report)) return;
    if (report.lost() > 0) losses_.base = loss_on(ctx_, args_, {.model = options_.model.string()});
    if (explained_by_rounding(losses_, report)) return;
    fail(ErrorKind::input,
         {.cause = fmt::format("the merged model behaves differently from the adapter: its loss is {:.6f}, the loss "
                               "with the adapter is {:.6f}, and rounding does not explain the difference",
                               losses_.merged, losses_.adapter),
          .place = options_.output.string(),
          .remedy = "do not use the merged model; use the adapter unmerged, or merge it with PEFT"});
  }

 private:
  Ctx& ctx_;
  const Arguments& args_;
  const MergeOptions& options_;
  MergeLosses losses_;
  bool has_adapter_ = false;
};

}  // namespace

int run_merge(const Arguments& args) {
  const MergeOptions options = merge_options(args);
  std::vector<std::filesystem::path> inputs{options.model};
  for (const MergedAdapter& a : options.adapters) inputs.push_back(a.folder);
  require_free_folder(args, options.output, inputs);
  const int threads = static_cast<int>(args.integer("threads").value_or(0));
  Ctx ctx = make_context({.device = "cpu", .compute = "float32", .threads = threads}, args.log());
  const MergeReport report = merge_adapters(ctx, options);
  say_rounding(args.log(), report);
  CommandResult result{
      .text = fmt::format("merged {} and wrote {}\n", fmt::join(args.all("adapter"), ", "), options.output.string()),
      .json = {{"output", options.output.string()}, {"rounding", report.lost()}}};
  if (args.has("data")) {
    LossCheck check(ctx, args, options);
    check.require_same(report);
    const Json losses = check.json();
    for (const auto& [name, loss] : losses.items())
      result.text += fmt::format("{} {}\n", name, finite_or_words(loss, 6));
    result.json.update(losses);
  }
  args.give(result);
  return 0;
}

}  // namespace qtrain
