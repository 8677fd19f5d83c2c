#include "model/lora.h"

#include <gmock/gmock.h>

#include <cmath>

#include "model/families/family.h"
#include "model/model_config.h"
#include "tests/core/temp_folder.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json adapter(const Json& more) {
  Json c = {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj", "v_proj"}}};
  if (!more.is_null()) c.update(more);
  return c;
}
LoraConfig parse(const Json& more) {
  return parse_lora_config(adapter(more), "a/adapter_config.json");
}

TEST(LoraConfig, ReadsTheFields) {
  const LoraConfig l =
      parse({{"r", 16}, {"lora_alpha", 32.5}, {"lora_dropout", 0.05}, {"base_model_name_or_path", "base"}});
  EXPECT_EQ(l.r, 16);
  EXPECT_EQ(l.alpha, 32.5);
  EXPECT_EQ(l.dropout, 0.05);
  EXPECT_FALSE(l.rslora);
  EXPECT_FALSE(l.dora);
  EXPECT_TRUE(parse({{"use_dora", true}}).dora);
  EXPECT_EQ(l.base_model, "base");
  EXPECT_THAT(l.targets, ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(parse({{"target_modules", "all-linear"}}).targets, ElementsAre("all-linear"));
  const Json bare{{"target_modules", {"q_proj"}}};
  EXPECT_EQ(parse_lora_config(bare, "a").r, 8) << "PEFT's default";
  EXPECT_EQ(parse_lora_config(bare, "a").alpha, 8);
}

TEST(LoraConfig, ScaleIsAlphaOverRankOrItsRoot) {
  EXPECT_EQ(parse({}).scale_of("model.layers.0.self_attn.q_proj"), 2);
  EXPECT_EQ(parse({{"use_rslora", true}}).scale_of("model.layers.0.self_attn.q_proj"), 4);
  EXPECT_NEAR(parse({{"r", 3}, {"lora_alpha", 1}, {"use_rslora", true}}).scale_of("model.layers.0.self_attn.q_proj"),
              1 / std::sqrt(3.0), 1e-15);
}

// As in PEFT: alpha / sqrt(r) with the module's rank and alpha, not the config's.
TEST(LoraConfig, RsLoraScalesByTheRankOfTheModule) {
  const LoraConfig lora = parse({{"r", 8},
                                 {"lora_alpha", 16},
                                 {"use_rslora", true},
                                 {"rank_pattern", {{"q_proj", 4}, {"up_proj", 16}}},
                                 {"alpha_pattern", {{"up_proj", 2}}}});
  EXPECT_EQ(lora.scale_of("model.layers.0.self_attn.q_proj"), 8);
  EXPECT_DOUBLE_EQ(lora.scale_of("model.layers.0.self_attn.k_proj"), 16 / std::sqrt(8.0));
  EXPECT_EQ(lora.scale_of("model.layers.0.mlp.up_proj"), 0.5);
}

TEST(LoraConfig, AcceptsEmptyVariants) {
  EXPECT_NO_THROW(parse({{"use_dora", false},
                         {"rank_pattern", Json::object()},
                         {"modules_to_save", nullptr},
                         {"bias", "none"},
                         {"layers_to_transform", nullptr},
                         {"init_lora_weights", true},
                         {"loftq_config", Json::object()}}));
  for (const char* init : {"gaussian", "eva", "orthogonal"}) EXPECT_NO_THROW(parse({{"init_lora_weights", init}}));
}

TEST(LoraConfig, RefusalsNameFileAndKey) {
  const std::pair<const char*, Json> kRefused[] = {
      {"peft_type", "IA3"},
      {"peft_type", 3},
      {"r", 0},
      {"r", 2.5},
      {"r", "8"},
      {"r", 100000},
      {"lora_alpha", "16"},
      {"lora_dropout", 1},
      {"lora_dropout", -0.1},
      {"use_rslora", "yes"},
      {"target_modules", nullptr},
      {"target_modules", 5},
      {"target_modules", {"q_proj", 5}},
      {"base_model_name_or_path", 1},
      {"use_dora", "yes"},
      {"use_qalora", true},
      {"use_bdlora", {{"nblocks", 2}}},
      {"rank_pattern", {{"q_proj", 0}}},
      {"rank_pattern", {{"q_proj", 2.5}}},
      {"rank_pattern", {{"q_proj", 65537}}},
      {"rank_pattern", 4},
      {"alpha_pattern", {{"q_proj", "16"}}},
      {"modules_to_save", "lm_head"},
      {"modules_to_save", {"lm_head", 5}},
      {"modules_to_save", {""}},
      {"ensure_weight_tying", 1},
      {"layers_to_transform", "0"},
      {"layers_to_transform", {0, 1.5}},
      {"layers_pattern", "layers"},
      {"layers_pattern", {5}},
      {"layer_replication", {{0, 1}}},
      {"bias", "all"},
      {"bias", "lora_only"},
      {"fan_in_fan_out", true},
      {"lora_bias", true},
      {"exclude_modules", 5},
      {"exclude_modules", {"q_proj", 5}},
      {"target_parameters", {"weight"}},
      {"trainable_token_indices", {1}},
      {"alora_invocation_tokens", {1}},
      {"velora_config", {{"a", 1}}},
      {"init_lora_weights", "pissa_niter_4"},
      {"init_lora_weights", "olora"},
  };
  for (const auto& [key, value] : kRefused) {
    SCOPED_TRACE(std::string(key) + " " + value.dump());
    const Error e = error_of([&] { parse({{key, value}}); });
    EXPECT_EQ(e.kind(), ErrorKind::input);
    EXPECT_EQ(e.text().place, "a/adapter_config.json");
    EXPECT_THAT(e.text().cause, HasSubstr("\"" + std::string(key) + "\""));
  }
  EXPECT_EQ(error_of([] { parse_lora_config(Json::array(), "a"); }).kind(), ErrorKind::input);
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { load_lora_config(folder.path()); }).what(), HasSubstr("adapter_config.json"));
}

std::vector<std::string> targets_among(std::vector<std::string> targets, const std::vector<std::string>& modules) {
  std::vector<std::string> chosen;
  for (const std::string& m : modules)
    if (is_target({.targets = targets}, m)) chosen.push_back(m);
  return chosen;
}

TEST(LoraConfig, PatternsMatchAsInPeft) {
  const LoraConfig lora = parse({{"r", 4},
                                 {"lora_alpha", 8},
                                 {"rank_pattern", {{"layers.1.self_attn.q_proj", 16}, {"q_proj", 2}, {"up|down", 3}}},
                                 {"alpha_pattern", {{"self_attn\\..*", 32}}}});
  const std::string q = "model.layers.1.self_attn.q_proj";
  EXPECT_EQ(lora.rank_of(q), 16) << "the first pattern that matches";
  EXPECT_EQ(lora.rank_of("model.layers.0.self_attn.q_proj"), 2);
  EXPECT_EQ(lora.rank_of("model.layers.11.self_attn.q_proj"), 2) << "a name begins after a dot";
  EXPECT_EQ(lora.rank_of("model.layers.0.mlp.up_proj"), 4) << "a pattern matches to the end of the name";
  EXPECT_EQ(lora.scale_of(q), 2.0) << "32 / 16";
  EXPECT_EQ(lora.scale_of("model.layers.0.mlp.up_proj"), 2.0) << "8 / 4";
  const Json again = lora_config_json(lora);
  EXPECT_EQ(dump_json(again["rank_pattern"]),
            dump_json(Json{{"layers.1.self_attn.q_proj", 16}, {"q_proj", 2}, {"up|down", 3}}));
}

TEST(LoraConfig, TargetsMatchAsInPeft) {
  const std::string q0 = "model.layers.0.self_attn.q_proj", q1 = "model.layers.1.self_attn.q_proj",
                    d1 = "model.layers.1.mlp.down_proj";
  const std::vector<std::string> all{q0, q1, d1};
  EXPECT_THAT(targets_among({"q_proj"}, all), ElementsAre(q0, q1));
  EXPECT_THAT(targets_among({"q_proj", "down_proj"}, all), ElementsAre(q0, q1, d1));
  EXPECT_THAT(targets_among({"all-linear"}, all), ElementsAre(q0, q1, d1));
  EXPECT_THAT(targets_among({"self_attn.q_proj"}, all), ElementsAre(q0, q1));
  EXPECT_THAT(targets_among({"proj"}, all), ElementsAre()) << "a name begins after a dot";
  EXPECT_THAT(targets_among({q1}, all), ElementsAre(q1));
  EXPECT_THAT(targets_among({q1, d1}, all), ElementsAre(q1, d1));
  EXPECT_THAT(targets_among({R"(.*\.layers\.1\..*_proj)"}, all), ElementsAre(q1, d1));
  EXPECT_THAT(targets_among({R"(.*(q|k)_proj)"}, all), ElementsAre(q0, q1));
  EXPECT_THAT(targets_among({"layers.[01].self_attn"}, all), ElementsAre()) << "a pattern matches the whole name";
}

// The decisions of PEFT's check_target_module_exists.
TEST(LoraConfig, ExclusionsAndLayersChooseAsInPeft) {
  const std::string q0 = "model.layers.0.self_attn.q_proj", q1 = "model.layers.1.self_attn.q_proj",
                    q11 = "model.layers.11.self_attn.q_proj", d1 = "model.layers.1.mlp.down_proj",
                    e1 = "model.layers.1.mlp.experts.0.down_proj";
  struct Case {
    Json keys;
    std::vector<std::string> chosen;
  };
  const Case cases[] = {
      {{}, {q0, q1, q11, d1, e1}},
      {{{"exclude_modules", {"down_proj"}}}, {q0, q1, q11}},
      {{{"exclude_modules", {"layers.1.self_attn.q_proj", "mlp.down_proj"}}}, {q0, q11, e1}},
      {{{"exclude_modules", "down_proj"}}, {q0, q1, q11, d1, e1}},
      {{{"exclude_modules", R"(.*\.1\..*)"}}, {q0, q11}},
      {{{"exclude_modules", Json::array()}}, {q0, q1, q11, d1, e1}},
      {{{"layers_to_transform", 1}}, {q1, d1, e1}},
      {{{"layers_to_transform", {0, 11}}}, {q0, q11}},
      {{{"layers_to_transform", Json::array()}}, {q0, q1, q11, d1, e1}},
      {{{"layers_to_transform", {1}}, {"layers_pattern", "layers"}}, {q1, d1, e1}},
      {{{"layers_to_transform", {1}}, {"layers_pattern", {"h", "layers"}}}, {q1, d1, e1}},
      {{{"layers_to_transform", {1}}, {"layers_pattern", "h"}}, {}},
      {{{"layers_to_transform", {0}}, {"layers_pattern", {"experts"}}}, {e1}},
      {{{"layers_to_transform", {1}}, {"exclude_modules", {"mlp.down_proj"}}}, {q1, e1}},
      {{{"layers_to_transform", {1}}, {"target_modules", {q0, "mlp.down_proj"}}}, {q0, d1}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.keys.dump());
    Json keys{{"target_modules", {"q_proj", "down_proj"}}};
    if (!c.keys.is_null()) keys.update(c.keys);
    const LoraConfig lora = parse(keys), saved = parse_lora_config(lora_config_json(lora), "saved");
    for (const std::string& module : {q0, q1, q11, d1, e1}) {
      const bool chosen = std::ranges::find(c.chosen, module) != c.chosen.end();
      EXPECT_EQ(is_target(lora, module), chosen) << module;
      EXPECT_EQ(is_target(saved, module), chosen) << module << " after it was saved";
    }
  }
  EXPECT_EQ(error_of([&] {
              parse({{"target_modules", ".*q_proj"}, {"layers_to_transform", {1}}});
            }).kind(),
            ErrorKind::input);
}

TEST(LoraConfig, AllLinearStandsInAListAndPatternsDoNot) {
  const std::string q = "model.layers.0.self_attn.q_proj", d = "model.layers.1.mlp.down_proj",
                    embedding = "model.embed_tokens", head = "lm_head";
  const std::vector<std::string> all{embedding, q, d, head};
  EXPECT_THAT(targets_among({"all-linear", "embed_tokens"}, all), ElementsAre(embedding, q, d));
  EXPECT_THAT(targets_among({"lm_head", "all-linear"}, all), ElementsAre(q, d, head));
  EXPECT_THAT(targets_among({"lm_head", ".*q_proj"}, all), ElementsAre(head));
  EXPECT_THAT(expanded_targets({"up_proj", "all-linear", "embed_tokens"}),
              ElementsAre("down_proj", "embed_tokens", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"));
}

TEST(LoraConfig, RefusesPatternsThatDoNotCompileOrEnd) {
  const std::string module = "model.layers.0.self_attn.q_proj";
  const Error broken = error_of([&] { is_target({.targets = {"(q_proj"}}, module); });
  EXPECT_EQ(broken.kind(), ErrorKind::usage);
  EXPECT_THAT(broken.what(), HasSubstr("(q_proj"));
  const Error endless = error_of([&] { is_target({.targets = {"(([a-z_.0-9]*)*)*[A-Z]"}}, module); });
  EXPECT_THAT(endless.what(), HasSubstr("too many steps"));
  EXPECT_EQ(error_of([&] { is_target({.targets = {std::string(1 << 20, '(')}}, module); }).kind(), ErrorKind::usage);
}

TEST(LoraConfig, IsWrittenAsPeftWritesIt) {
  const LoraConfig l{
      .r = 16, .alpha = 32, .dropout = 0.05, .rslora = true, .targets = {"v_proj", "q_proj"}, .base_model = "base"};
  const Json json = lora_config_json(l);
  EXPECT_EQ(json["peft_type"], "LORA");
  EXPECT_EQ(json["task_type"], "CAUSAL_LM");
  EXPECT_EQ(json["r"], 16);
  EXPECT_EQ(json["lora_alpha"].dump(), "32");
  EXPECT_EQ(json["lora_dropout"], 0.05);
  EXPECT_EQ(json["bias"], "none");
  EXPECT_EQ(json["use_rslora"], true);
  EXPECT_EQ(json["inference_mode"], true);
  EXPECT_EQ(json["base_model_name_or_path"], "base");
  EXPECT_EQ(json["target_modules"], (Json{"q_proj", "v_proj"})) << "sorted";
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
}

TEST(LoraConfig, SurvivesWritingAndReading) {
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"q_proj", "v_proj"}, {".*q_proj"}, {"model.layers.0.mlp.up_proj"}}) {
    const LoraConfig l{
        .r = 3, .alpha = 1.5, .dropout = 0.25, .rslora = true, .dora = true, .targets = targets, .base_model = "b"};
    const LoraConfig back = parse_lora_config(lora_config_json(l), "a");
    EXPECT_EQ(back.r, l.r);
    EXPECT_EQ(back.alpha, l.alpha);
    EXPECT_EQ(back.dropout, l.dropout);
    EXPECT_EQ(back.rslora, l.rslora);
    EXPECT_EQ(back.dora, l.dora);
    EXPECT_EQ(back.targets, l.targets);
    EXPECT_EQ(back.base_model, l.base_model);
  }
}

TEST(LoraConfig, WritesTargetsInAFormThatPeftReads) {
  EXPECT_EQ(lora_config_json({.targets = {"all-linear"}})["target_modules"],
            (Json{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}))
      << "a list with all-linear in it would name a module";
  EXPECT_EQ(lora_config_json({.targets = {"lm_head", "all-linear"}})["target_modules"].size(), 8u);
  EXPECT_EQ(lora_config_json({.targets = {".*q_proj"}})["target_modules"], Json(".*q_proj"))
      << "in a list it is a name";
}

// tests/golden/make_goldens.py made lora_qwen3_moe with PEFT and target_modules "all-linear".
TEST(LoraConfig, TargetsOfExpertsBecomeParametersAsInPeft) {
  const LoraConfig theirs = load_lora_config(QTRAIN_SOURCE_DIR "/tests/golden/data/lora_qwen3_moe/adapter");
  const LoraConfig ours = with_experts({.r = 4, .alpha = 8, .targets = {"all-linear"}}, {});
  EXPECT_THAT(ours.targets, ::testing::UnorderedElementsAreArray(theirs.targets));
  EXPECT_THAT(ours.target_parameters, ::testing::UnorderedElementsAreArray(theirs.target_parameters));
  EXPECT_EQ(ours.rank_pattern, theirs.rank_pattern);
  EXPECT_EQ(ours.alpha_pattern, theirs.alpha_pattern);
  EXPECT_EQ(with_experts({.targets = {"q_proj", "v_proj"}}, {}).target_parameters.size(), 0u);
  EXPECT_THAT(with_experts({.targets = {"q_proj", "mlp.down_proj"}}, {}).target_parameters,
              ::testing::ElementsAre("down_proj"));
  EXPECT_EQ(error_of([] { with_experts({.targets = {"up_proj"}}, {}); }).kind(), ErrorKind::usage);
}

TEST(LoraConfig, MixturesMayCallTheirMatricesOtherwise) {
  const LoraConfig theirs = load_lora_config(QTRAIN_SOURCE_DIR "/tests/golden/data/lora_mixtral/adapter");
  const ModelConfig model = load_model_config(QTRAIN_SOURCE_DIR "/tests/golden/data/mixtral");
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"all-linear"}, {"q_proj", "k_proj", "v_proj", "o_proj", "gate", "w1", "w2", "w3"}}) {
    const LoraConfig ours = for_model({.r = 4, .alpha = 8, .targets = targets}, model);
    EXPECT_THAT(ours.targets, ::testing::UnorderedElementsAreArray(theirs.targets));
    EXPECT_THAT(ours.target_parameters, ::testing::UnorderedElementsAreArray(theirs.target_parameters));
    EXPECT_EQ(ours.rank_pattern, theirs.rank_pattern);
    EXPECT_EQ(ours.alpha_pattern, theirs.alpha_pattern);
  }
  EXPECT_EQ(error_of([&] { for_model({.targets = {"w1"}}, model); }).kind(), ErrorKind::usage);
}

// PEFT does not change targets if files hold all experts in one tensor.
TEST(LoraConfig, TargetsOfJoinedExpertsStayNames) {
  const ModelConfig model = parse_model_config(small_config({{"model_type", "gpt_oss"}}), "m");
  const LoraConfig theirs = load_lora_config(QTRAIN_SOURCE_DIR "/tests/golden/data/lora_gpt_oss/adapter");
  EXPECT_THAT(theirs.target_parameters, ::testing::Contains("router.weight"));
  const LoraConfig ours = for_model({.targets = {"all-linear"}}, model);
  EXPECT_THAT(ours.target_parameters, ::testing::IsEmpty());
  EXPECT_THAT(linear_names(model), ::testing::ElementsAre("q_proj", "k_proj", "v_proj", "o_proj"));
  for (const std::string& module : theirs.targets) EXPECT_TRUE(is_target(ours, module)) << module;
  EXPECT_FALSE(is_target(ours, "model.layers.0.mlp.router"));
}

// Nor does it in Qwen2-MoE: targets mean the expert for all tokens, and the MLPs of layers without experts.
TEST(LoraConfig, TargetsOfQwen2MoeAreLinearLayers) {
  const ModelConfig model = load_model_config(QTRAIN_SOURCE_DIR "/tests/golden/data/qwen2_moe");
  const LoraConfig theirs = load_lora_config(QTRAIN_SOURCE_DIR "/tests/golden/data/lora_qwen2_moe/adapter");
  const LoraConfig ours = for_model({.targets = {"all-linear"}}, model);
  EXPECT_THAT(ours.target_parameters, ::testing::IsEmpty());
  std::vector<std::string> targets;
  for (std::string& module : linear_modules(model))
    if (is_target(ours, module)) targets.push_back(std::move(module));
  EXPECT_THAT(targets, ::testing::UnorderedElementsAreArray(theirs.targets));
  EXPECT_THAT(for_model({.targets = {"up_proj"}}, model).targets, ::testing::ElementsAre("up_proj"));
}

}  // namespace
}  // namespace qtrain::testing
