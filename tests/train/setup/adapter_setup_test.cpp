// Adapters as a config declares them.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "train/device_batch.h"
#include "train/plan/compute.h"
#include "train/setup/model_setup.h"

namespace qtrain {
namespace {

ParamStore& adapter_of(ModelSetup& setup, const Json& changes) {
  Json values{{"model_name_or_path", std::string(QTRAIN_SOURCE_DIR) + "/tests/golden/data/llama_gqa3_tied"},
              {"use_peft", true},
              {"lora_modules_to_save", {"norm"}},
              {"learning_rate", 2e-4},
              {"loraplus_lr_ratio", 16},
              {"loraplus_lr_embedding", 1e-6}};
  values.update(changes);
  setup = set_up_model(ComputePlan{}, training_request(parse_config(values.dump(), "c.json").value));
  return setup.model->adapter();
}

// Learning rates in the groups of peft.optimizers.create_loraplus_optimizer (PEFT 0.21) for such adapters on this model
// with lr=2e-4, loraplus_lr_ratio=16 and loraplus_lr_embedding=1e-6.
TEST(AdapterSetup, LoraPlusHasTheRatesOfPeft) {
  const std::map<std::string, double> rates{{".lora_A.weight", 2e-4},           {".lora_B.weight", 3.2e-3},
                                            {".lora_embedding_A", 1e-6},        {".lora_embedding_B", 1e-6},
                                            {".lora_magnitude_vector", 3.2e-3}, {"norm.weight", 3.2e-3}};
  std::set<std::string> seen;
  for (const Json& kind : {Json{{"lora_target_modules", {"q_proj", "embed_tokens"}}}, Json{{"use_dora", true}}}) {
    ModelSetup setup;
    for (const Param& p : adapter_of(setup, kind).all())
      for (const auto& [ending, rate] : rates)
        if (p.spec.name.ends_with(ending)) {
          EXPECT_DOUBLE_EQ(p.spec.learning_rate * 2e-4, rate) << p.spec.name;
          seen.insert(ending);
        }
  }
  EXPECT_EQ(seen.size(), rates.size());
}

TEST(AdapterSetup, AllLinearLayersBesideOthersInAList) {
  ModelSetup setup;
  std::set<std::string> adapted;
  for (const Param& p : adapter_of(setup, {{"lora_target_modules", {"embed_tokens", "all-linear"}}}).all())
    if (const auto end = p.spec.name.find(".lora_"); end != std::string::npos)
      adapted.insert(p.spec.name.substr(0, end));
  EXPECT_EQ(std::ssize(adapted), 7 * setup.model->config().layers + 1);
}

TEST(AdapterSetup, DropoutIsAnotherInEveryMicroBatchOfEveryStep) {
  std::set<std::int64_t> seeds;
  for (const std::int64_t seed : {0, 1, 42})
    for (std::int64_t step = 0; step < 100; ++step)
      for (std::int64_t batch = 0; batch < 100; ++batch) seeds.insert(dropout_seed(seed, step, batch));
  EXPECT_EQ(seeds.size(), 3u * 100 * 100);
}

}  // namespace
}  // namespace qtrain
