#include <fmt/format.h>

#include "train/config/check.h"
#include "train/config/types.h"

namespace qtrain {

void remark_combinations(ResolvedConfig& config) {
  const TrainingSection& t = config.value.training;
  const auto say = [&](std::string text) { config.notes.push_back(std::move(text)); };
  if (t.tf32.value_or(false) && (t.bf16 || t.fp16))
    say(fmt::format("tf32 has no effect: it is about products in float32, and {} makes them 16-bit ones",
                    t.bf16 ? "bf16" : "fp16"));
  if (t.train_sampling_strategy == Sampling::group_by_length && config.value.data.packing &&
      config.given("train_sampling_strategy"))
    say("train_sampling_strategy group_by_length has no use with packing: packed rows are all about as long");
  if (config.given("dataloader_prefetch_factor") && t.dataloader_prefetch_factor && t.dataloader_num_workers == 0)
    say("dataloader_prefetch_factor is given but dataloader_num_workers is 0, which transformers refuses: one thread "
        "prepares batches ahead");
  if (t.warmup_steps > 0 && t.warmup_ratio > 0 && config.given("warmup_ratio"))
    say("warmup_ratio has no effect: warmup_steps is above 0");
  if (t.max_steps > 0 && t.warmup_steps >= 1 && t.warmup_steps >= static_cast<double>(t.max_steps))
    say(fmt::format("warmup_steps {} of max_steps {}: the learning rate never reaches its peak", t.warmup_steps,
                    t.max_steps));
}

}  // namespace qtrain
