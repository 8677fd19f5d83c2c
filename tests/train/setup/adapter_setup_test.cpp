// Adapters as declared by a config.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "model/model_config.h"
#include "tests/errors.h"
#include "train/setup/adapter_names.h"
#include "train/setup/compute.h"
#include "train/setup/model_setup.h"
#include "train/step/device_batch.h"

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

// The layers that get_peft_model of PEFT 0.21 adapts in this model with the same keys.
TEST(AdapterSetup, ExclusionsAndNumbersOfLayersChooseAsInPeft) {
  const auto adapted = [](Json keys) {
    keys.update({{"lora_modules_to_save", Json::array()}});
    ModelSetup setup;
    std::set<std::string> names;
    const std::string before = "base_model.model.model.layers.";
    for (const Param& p : adapter_of(setup, keys).all())
      if (const auto end = p.spec.name.find(".lora_A."); end != std::string::npos)
        names.insert(p.spec.name.substr(before.size(), end - before.size()));
    return names;
  };
  const std::set<std::string> q{"0.self_attn.q_proj", "1.self_attn.q_proj"}, q1{"1.self_attn.q_proj"};
  const Json q_and_o{"q_proj", "o_proj"};
  EXPECT_EQ(adapted({{"lora_target_modules", q_and_o}, {"exclude_modules", "o_proj"}}), q);
  EXPECT_EQ(adapted({{"lora_target_modules", q_and_o}, {"exclude_modules", {"o_proj", "layers.0.self_attn.q_proj"}}}),
            q1);
  EXPECT_EQ(adapted({{"lora_target_modules", "all-linear"}, {"exclude_modules", R"(.*(mlp|self_attn\.[kvo]).*)"}}), q);
  EXPECT_EQ(adapted({{"lora_target_modules", "q_proj"}, {"layers_to_transform", 1}}), q1);
  EXPECT_EQ(adapted({{"lora_target_modules", "q_proj"}, {"layers_to_transform", {0, 1}}, {"layers_pattern", "layers"}}),
            q);
  EXPECT_EQ(adapted({{"target_modules", q_and_o}, {"layers_to_transform", {1}}, {"exclude_modules", {"o_proj"}}}), q1);
  EXPECT_EQ(adapted({{"lora_target_modules", "q_proj"}, {"layers_to_transform", nullptr}, {"exclude_modules", ""}}), q);
}

TEST(AdapterSetup, ExclusionsAndLayersWithoutEffectAreErrors) {
  const std::pair<Json, const char*> cases[] = {
      {{{"exclude_modules", {"o_proj"}}}, "exclude_modules: \"o_proj\" matches no layer of lora_target_modules"},
      {{{"exclude_modules", {"q_porj"}}}, "did you mean \"q_proj\""},
      {{{"exclude_modules", ".*o_proj"}}, "exclude_modules: \".*o_proj\""},
      {{{"layers_to_transform", {0, 2}}}, "there is no layer 2; the model's are 0 to 1"},
      {{{"layers_to_transform", -1}}, "there is no layer -1"},
      {{{"layers_to_transform", {0}}, {"lora_target_modules", ".*q_proj"}},
       "regular expression in lora_target_modules"},
  };
  for (const auto& [keys, text] : cases) {
    ModelSetup setup;
    const std::string error = test::error_of(ErrorKind::usage, [&] { adapter_of(setup, keys); });
    EXPECT_NE(error.find(text), std::string::npos) << error;
  }
  ModelSetup setup;
  const std::string error = test::error_of(ErrorKind::usage, [&] {
    adapter_of(setup, {{"exclude_modules", {"lm_haed"}}});
  });
  EXPECT_EQ(error.find("did you mean"), std::string::npos) << "lm_head is not a target either: " << error;
}

// PEFT matches patterns against "...mlp.experts.gate_up_proj" and "...mlp.gate.weight".
TEST(AdapterSetup, PatternsOfExpertsGoByTheNamesOfParameters) {
  const auto on_experts = [](const Json& patterns) {
    ModelSetup setup;
    std::map<std::string, std::int64_t> rows;
    for (const Param& p :
         adapter_of(setup, {{"model_name_or_path", std::string(QTRAIN_SOURCE_DIR) + "/tests/golden/data/qwen3_moe"},
                            {"lora_modules_to_save", Json::array()},
                            {"lora_target_modules", "all-linear"},
                            {"lora_r", 4},
                            {"lora_dropout", 0},
                            {"rank_pattern", patterns}})
             .all())
      rows[p.spec.name] = p.spec.shape[0];
    return rows;
  };
  constexpr std::int64_t kExperts = 5;
  const std::string mlp = "base_model.model.model.layers.0.mlp.";
  const auto rows =
      on_experts({{"gate_up_proj", 3}, {"layers.0.mlp.gate.weight", 2}, {"layers.0.mlp.experts.down_proj", 6}});
  EXPECT_EQ(rows.at(mlp + "experts.base_layer.lora_A.weight"), 3 * kExperts);
  EXPECT_EQ(rows.at(mlp + "experts.lora_A.weight"), 6 * kExperts);
  EXPECT_EQ(rows.at(mlp + "gate.lora_A.weight"), 2);
  for (const char* name : {"gate_proj", "mlp.experts.up_proj", "mlp.gate"})
    EXPECT_THROW(on_experts({{name, 3}}), Error) << name << " is no name of PEFT's there";
}

TEST(AdapterSetup, ParametersThatMatchNothingAreNamed) {
  const ModelConfig moe = load_model_config(std::string(QTRAIN_SOURCE_DIR) + "/tests/golden/data/qwen3_moe"),
                    dense = load_model_config(std::string(QTRAIN_SOURCE_DIR) + "/tests/golden/data/qwen3_hd8");
  const LoraConfig lora{.target_parameters = {"gate_up_proj", "block.down_proj", "mlp.gate.weight"}};
  EXPECT_EQ(idle_parameters(lora, moe), std::vector<std::string>{"block.down_proj"});
  EXPECT_EQ(idle_parameters(lora, dense), lora.target_parameters);
}

// These names would be accepted without any effect.
TEST(AdapterSetup, ExpertsThatFilesHoldAsOneAreNoTargets) {
  const auto folder = [](const char* name) { return std::string(QTRAIN_SOURCE_DIR) + "/tests/golden/data/" + name; };
  const LoraConfig lora{.targets = {"q_proj", "router", "gate_up_proj"}};
  EXPECT_EQ(test::error_of([&] { require_adapter_names(lora, load_model_config(folder("gpt_oss"))); }).kind(),
            ErrorKind::usage);
  EXPECT_NO_THROW(
      require_adapter_names({.targets = {"q_proj", "gate", "w1", "w3"}}, load_model_config(folder("mixtral"))));
}

// Its name in adapters differs from that in files.
TEST(AdapterSetup, TheRouterOfMixtralIsNotTrainedWhole) {
  ModelSetup setup;
  const Json router{{"model_name_or_path", std::string(QTRAIN_SOURCE_DIR) + "/tests/golden/data/mixtral"},
                    {"lora_modules_to_save", {"gate"}}};
  const Error error = test::error_of([&] { adapter_of(setup, router); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_NE(std::string(error.what()).find("cannot be trained as a whole"), std::string::npos) << error.what();
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
