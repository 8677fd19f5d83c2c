#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "config/check.h"
#include "config/fields.h"
#include "config/keys.h"
#include "config/remarks.h"

/// What is said of values that go together without effect.
namespace qtrain {
namespace {

/// A note about a key that has an effect, with the key's place.
void say(ResolvedConfig& config, const std::string& key, const std::string& text) {
  config.judge.note(config.origin.at(key), text);
}

// What is switched off in so many words needs no remark: dumps of all arguments have the rest too.
void judge_adapter(ResolvedConfig& config) {
  const Config& c = config.value;
  if (config.given("use_peft") || c.lora.use_peft || c.model.adapter_name_or_path) return;
  std::vector<std::string> keys;
  for (const Field& f : fields())
    if (f.section == "LoRA" && config.given(f.name) && !says_nothing(f.read(c))) keys.push_back(f.name);
  if (keys.empty()) return;
  for (const std::string& key : keys) {
    Remark ignored = ignored_key(config, key, "use_peft is not true");
    ignored.level = RemarkLevel::silent;
    config.judge.say(std::move(ignored));
  }
  config.judge.say(
      {.level = RemarkLevel::warning,
       .origin = config.origin.at(keys.front()),
       .text = fmt::format("LoRA keys are given but use_peft is not true: all weights will be trained ({})",
                           fmt::join(keys, ", "))});
}

void judge_quantization(ResolvedConfig& config) {
  const QuantSection& q = config.value.quant;
  const TrainingSection& t = config.value.training;
  if (!q.load_in_4bit) {
    if (config.given("load_in_4bit")) return;
    for (const Field& f : fields())
      if (f.name.starts_with("bnb_4bit_")) no_effect(config, f.name, "load_in_4bit is not true");
    return;
  }
  const std::string compute = q.bnb_4bit_compute_dtype.value_or("");
  const std::string_view used = t.bf16 ? "bfloat16" : t.fp16 ? "float16" : "float32";
  if (!compute.empty() && compute != used)
    no_effect(config, "bnb_4bit_compute_dtype", fmt::format("GEMMs are in {}, as bf16 and fp16 say", used));
}

void judge_schedule(ResolvedConfig& config) {
  const TrainingSection& t = config.value.training;
  const auto kind = t.lr_scheduler_type;
  if ((kind == ScheduleKind::constant || kind == ScheduleKind::constant_with_warmup) && !t.lr_scheduler_kwargs.empty())
    no_effect(config, "lr_scheduler_kwargs", "the schedule is constant");
  if (t.warmup_steps > 0 && t.warmup_ratio > 0) no_effect(config, "warmup_ratio", "warmup_steps is above 0");
  if (t.max_steps > 0 && t.warmup_steps >= 1 && t.warmup_steps >= static_cast<double>(t.max_steps))
    say(config, "warmup_steps",
        fmt::format("warmup_steps {} of max_steps {}: the learning rate never reaches its peak", t.warmup_steps,
                    t.max_steps));
}

void judge_work(ResolvedConfig& config) {
  const TrainingSection& t = config.value.training;
  if (t.tf32.value_or(false) && (t.bf16 || t.fp16))
    no_effect(config, "tf32",
              fmt::format("it is about GEMMs in float32, and {} makes them 16-bit ones", t.bf16 ? "bf16" : "fp16"));
  if (t.train_sampling_strategy == Sampling::group_by_length && config.value.data.packing &&
      config.given("train_sampling_strategy"))
    say(config, "train_sampling_strategy",
        "train_sampling_strategy group_by_length has no use with packing: packed rows are all about as long");
  if (config.given("dataloader_prefetch_factor") && t.dataloader_prefetch_factor && t.dataloader_num_workers == 0)
    say(config, "dataloader_prefetch_factor",
        "dataloader_prefetch_factor is given but dataloader_num_workers is 0, which transformers refuses: one thread "
        "prepares batches ahead");
}

}  // namespace

void judge_values(ResolvedConfig& config) {
  judge_adapter(config);
  judge_quantization(config);
  judge_schedule(config);
  judge_work(config);
}

}  // namespace qtrain
