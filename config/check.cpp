#include "config/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>

#include "config/keys.h"
#include "config/remarks.h"
#include "config/training_sources.h"
#include "kernels/quantize.h"
#include "model/lora.h"
#include "model/recompute.h"
#include "quant/bnb.h"
#include "text/template/date.h"

namespace qtrain {
namespace {

std::string expand_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (!home || (path != "~" && !path.starts_with("~/"))) return path;
  return home + path.substr(1);
}

void expand_paths(Config& c) {
  for (auto* paths : {&c.data.dataset_name, &c.data.eval_dataset_name})
    for (std::string& p : *paths) p = expand_home(p);
  for (Json& entry : c.data.dataset_mixture) {
    Json* path = entry.is_string() ? &entry : entry.is_object() && entry.contains("path") ? &entry["path"] : nullptr;
    if (path != nullptr && path->is_string()) *path = expand_home(path->get<std::string>());
  }
  for (auto* path : {&c.model.model_name_or_path, &c.training.output_dir, &c.training.resume_from_checkpoint})
    *path = expand_home(*path);
  for (auto* path : {&c.model.adapter_name_or_path, &c.model.tokenizer_name_or_path, &c.model.chat_template_path})
    if (*path) **path = expand_home(**path);
}

/// bnb_4bit_compute_dtype is the type of all GEMMs where bf16 and fp16 are not given.
void follow_compute_dtype(ResolvedConfig& config) {
  const QuantSection& q = config.value.quant;
  TrainingSection& t = config.value.training;
  const bool asked = config.given("bnb_4bit_compute_dtype") && q.load_in_4bit && q.bnb_4bit_compute_dtype;
  if (!asked || config.given("bf16") || config.given("fp16")) return;
  t.bf16 = *q.bnb_4bit_compute_dtype == "bfloat16";
  t.fp16 = *q.bnb_4bit_compute_dtype == "float16";
}

/// Collects contradictions; a place is where the user wrote the (first) key.
struct Checks {
  const ResolvedConfig& config;
  std::vector<ErrorText> problems = {};

  void require(Claim claim, const char* key, std::string cause, std::string remedy = {}) {
    if (claim.holds) return;
    problems.push_back({.cause = std::move(cause), .place = config.origin.at(key), .remedy = std::move(remedy)});
  }
};

bool whole(double steps) {
  return steps < 1 || steps == std::floor(steps);
}

void check_steps(Checks& c) {
  const TrainingSection& t = c.config.value.training;
  c.require(!t.output_dir.empty(), "output_dir", "output_dir is empty", "name a folder");
  const double eval_steps = t.eval_steps.value_or(t.logging_steps);
  constexpr const char* kWhole = "round it, or give a share of all updates, below 1";
  const auto fractional = [](const char* key, double v) {
    return fmt::format("{} is {}: above 1 it must be a whole number", key, v);
  };
  if (t.logging_strategy == EvalStrategy::steps) {
    c.require(t.logging_steps > 0, "logging_steps", "logging_strategy steps needs logging_steps above 0",
              "set logging_steps, or logging_strategy to no");
    c.require(whole(t.logging_steps), "logging_steps", fractional("logging_steps", t.logging_steps), kWhole);
  }
  if (t.eval_strategy == EvalStrategy::steps) {
    c.require(eval_steps > 0, "eval_steps", "eval_strategy steps needs eval_steps above 0",
              "set eval_steps, or eval_strategy to no");
    c.require(whole(eval_steps), "eval_steps", fractional("eval_steps", eval_steps), kWhole);
  }
  if (t.save_strategy == SaveStrategy::steps)
    c.require(whole(t.save_steps), "save_steps", fractional("save_steps", t.save_steps), kWhole);
  c.require(whole(t.warmup_steps), "warmup_steps", fractional("warmup_steps", t.warmup_steps), kWhole);
}

/// The best checkpoint must be among those saved.
void check_best(Checks& c) {
  const TrainingSection& t = c.config.value.training;
  const std::string metric = t.metric_for_best_model.value_or("loss");
  c.require(metric == "loss" || metric == "eval_loss", "metric_for_best_model",
            fmt::format("metric_for_best_model \"{}\" is not computed here", metric), "use eval_loss");
  const bool best = t.save_strategy == SaveStrategy::best;
  if (best || t.load_best_model_at_end)
    c.require(t.eval_strategy != EvalStrategy::no, best ? "save_strategy" : "load_best_model_at_end",
              "the best checkpoint is chosen by evaluation, but eval_strategy is no",
              "set eval_strategy to steps or epoch");
  if (!t.load_best_model_at_end || best || t.eval_strategy == EvalStrategy::no) return;
  const auto eval = name_of_enum(t.eval_strategy), save = name_of_enum(t.save_strategy);
  c.require(
      eval == save, "load_best_model_at_end",
      fmt::format("load_best_model_at_end needs saves where evaluations are: eval_strategy is {}, save_strategy {}",
                  eval, save),
      "give both the same value, or save_strategy best");
  const double every = t.eval_steps.value_or(t.logging_steps), times = t.save_steps / every;
  if (eval == save && t.eval_strategy == EvalStrategy::steps)
    c.require(std::abs(times - std::round(times)) < 1e-6 && times > 0.5 && (t.save_steps < 1) == (every < 1),
              "load_best_model_at_end",
              fmt::format("load_best_model_at_end needs save_steps ({}) to be a multiple of eval_steps ({})",
                          t.save_steps, every),
              "set save_steps to one of its multiples");
}

void check_data(Checks& c) {
  const DataSection& d = c.config.value.data;
  const TrainingSection& t = c.config.value.training;
  const bool has_rows = !d.eval_dataset_name.empty() || d.eval_split > 0;
  c.require(t.eval_strategy == EvalStrategy::no || has_rows, "eval_strategy",
            fmt::format("eval_strategy is {} but there is nothing to evaluate on", name_of_enum(t.eval_strategy)),
            "give eval_dataset_name (or eval_split)");
  c.require(d.eval_split < 1 || d.eval_split == std::floor(d.eval_split), "eval_split",
            fmt::format("eval_split {} is neither a share nor a number of rows", d.eval_split),
            "give a number below 1 or a whole one");
  c.require(d.packing_strategy != Packing::none, "packing_strategy", "packing_strategy cannot be none",
            "set packing to false");
  const bool packs = d.packing || d.eval_packing.value_or(false);
  c.require(!packs || d.max_length, "max_length", "packing needs max_length, the size of a packed row",
            "give max_length a number");
}

void check_sources(Checks& c) {
  const DataSection& d = c.config.value.data;
  c.require(d.dataset_name.empty() || d.dataset_mixture.empty(), "dataset_mixture",
            "dataset_name and dataset_mixture both name training rows", "keep one of them");
  try {
    const std::vector<DataSource> sources = training_sources(d);
    const auto with = [&](auto member) {
      return static_cast<std::size_t>(
          std::count_if(sources.begin(), sources.end(), [&](const DataSource& s) { return (s.*member).has_value(); }));
    };
    const std::size_t fractions = with(&DataSource::fraction), weights = with(&DataSource::weight);
    c.require((fractions == 0 || fractions == sources.size()) && (weights == 0 || weights == sources.size()),
              "dataset_mixture", "some sources have a fraction or a weight, and others have none", "give it to all");
    c.require(weights == 0 || d.mix_strategy != MixStrategy::concatenate, "mix_strategy",
              "weights have no effect on sources that are concatenated", "leave mix_strategy out, or the weights");
  } catch (const Error& e) {  // adds the place
    const std::string key = e.text().place;
    c.problems.push_back({.cause = (key.empty() ? "" : key + ": ") + e.text().cause,
                          .place = c.config.origin.at(d.dataset_mixture.empty() ? key : "dataset_mixture"),
                          .remedy = e.text().remedy});
  }
}

void check_template(Checks& c) {
  const auto& date = c.config.value.model.template_date;
  c.require(!date || clock_on(*date), "template_date",
            fmt::format("template_date \"{}\" is not a day of the calendar", date.value_or("")),
            "write it as 2026-07-26");
}

void check_precision(Checks& c) {
  const TrainingSection& t = c.config.value.training;
  c.require(!(t.bf16 && t.fp16), "fp16", "bf16 and fp16 are both true", "keep one of them");
  const std::string& policy = t.gradient_checkpointing.policy;
  c.require(!t.activation_offloading || policy == Recompute::kAuto || RecomputePolicy::parse(policy)->whole_blocks(),
            "activation_offloading",
            "activation_offloading keeps inputs of blocks, and gradient_checkpointing keeps more",
            R"(set gradient_checkpointing to true, "blocks:N" or "auto")");
}

void check_adapter(Checks& c) {
  const LoraSection& l = c.config.value.lora;
  for (const auto& [module, rank] : l.rank_pattern.items())
    c.require(rank.is_number_integer() && rank > 0 && rank <= LoraConfig::kMaxRank, "rank_pattern",
              fmt::format("the rank of \"{}\" is {}", module, rank.dump()),
              fmt::format("give an integer from 1 to {}", LoraConfig::kMaxRank));
  for (const auto& [module, alpha] : l.alpha_pattern.items())
    c.require(alpha.is_number() && alpha > 0, "alpha_pattern",
              fmt::format("the alpha of \"{}\" is {}", module, alpha.dump()), "give a number above 0");
}

void check_quantization(Checks& c) {
  const QuantSection& q = c.config.value.quant;
  c.require(!(q.load_in_4bit && q.load_in_8bit), "load_in_8bit", "load_in_4bit and load_in_8bit are both true",
            "keep one of them");
  c.require(is_blocksize4(q.bnb_4bit_blocksize), "bnb_4bit_blocksize",
            fmt::format("bnb_4bit_blocksize is {}", q.bnb_4bit_blocksize), "use a power of two from 32 to 4096");
  for (const std::string& name : q.llm_int8_skip_modules)
    c.require(is_module_name(name), "llm_int8_skip_modules",
              fmt::format("llm_int8_skip_modules: \"{}\" is not a name of a module", name),
              "give names or prefixes, such as \"mlp.up_proj\" or \"model.layers.0\"");
}

/// The schedule checks its arguments itself; only the peak and the kind matter for that.
void check_schedule(Checks& c) {
  const TrainingSection& t = c.config.value.training;
  try {
    make_schedule({.kind = t.lr_scheduler_type,
                   .learning_rate = t.learning_rate,
                   .total_steps = 1'000,
                   .kwargs = t.lr_scheduler_kwargs});
  } catch (const Error& e) {  // adds the place
    ErrorText text = e.text();
    text.cause = text.place + ": " + text.cause;
    text.place =
        c.config.origin.at(text.cause.starts_with("lr_scheduler_type") ? "lr_scheduler_type" : "lr_scheduler_kwargs");
    c.problems.push_back(text);
  }
}

/// So does the optimizer. Whether there is one of that name is asked where a run needs it.
void check_optimizer(Checks& c) {
  const OptimizerOptions options = optimizer_options(c.config.value.training);
  try {
    if (find_optimizer(options.name)->rule.empty()) return;
    make_rule(options);
    const Config& config = c.config.value;
    c.require(!trains_bf16(options) || !(config.lora.use_peft || config.model.adapter_name_or_path), "optim_args",
              "stochastic_rounding is about trained weights in bfloat16, and an adapter is float32",
              "leave it out, or train all weights (use_peft false)");
  } catch (const Error& e) {  // adds the place
    ErrorText text = e.text();
    text.cause = text.place + ": " + text.cause;
    text.place = c.config.origin.at("optim_args");
    c.problems.push_back(text);
  }
}

}  // namespace

void complete_config(ResolvedConfig& config) {
  Config& c = config.value;
  if (!config.given("bf16") && c.training.fp16) c.training.bf16 = false;
  follow_compute_dtype(config);
  if (!c.training.eval_steps && c.training.eval_strategy == EvalStrategy::steps)
    c.training.eval_steps = c.training.logging_steps;
  if (c.training.load_best_model_at_end && !c.training.metric_for_best_model) c.training.metric_for_best_model = "loss";
  expand_paths(c);
  judge_values(config);
}

std::vector<ErrorText> contradictions(const ResolvedConfig& config) {
  Checks checks{config};
  check_template(checks);
  check_precision(checks);
  check_adapter(checks);
  check_quantization(checks);
  check_steps(checks);
  check_data(checks);
  check_sources(checks);
  check_best(checks);
  check_schedule(checks);
  check_optimizer(checks);
  return std::move(checks.problems);
}

OptimizerOptions optimizer_options(const TrainingSection& t) {
  return {.name = t.optim,
          .arguments = t.optim_args.value_or(""),
          .beta1 = t.adam_beta1,
          .beta2 = t.adam_beta2,
          .eps = t.adam_epsilon,
          .weight_decay = t.weight_decay,
          .seed = static_cast<std::uint64_t>(t.seed)};
}

std::int64_t warmup_steps(const TrainingSection& t, std::int64_t max_steps) {
  if (t.warmup_steps >= 1) return static_cast<std::int64_t>(t.warmup_steps);
  const double share = t.warmup_steps > 0 ? t.warmup_steps : t.warmup_ratio;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(max_steps) * share));
}

std::int64_t interval_steps(double steps, std::int64_t max_steps) {
  if (steps >= 1) return static_cast<std::int64_t>(steps);
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(max_steps) * steps));
}

}  // namespace qtrain
