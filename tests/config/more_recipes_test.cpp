// Configs with what people bring from other tools: early stopping, NEFTune, and the recipes of alignment-handbook.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/os/file.h"
#include "tests/config/recipes.h"
#include "tests/core/temp_folder.h"
#include "train/setup/dataset_setup.h"

namespace qtrain {
namespace {

using test::recipe;
using test::refusal_of_recipe;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// axolotl loads the best checkpoint when it stops early, if its evaluations divide its saves.
TEST(EarlyStoppingOfAxolotl, LoadsTheBestCheckpoint) {
  const auto config = [](const char* steps) {
    return recipe(fmt::format("base_model: m\ndatasets: [{{path: d.jsonl}}]\nval_set_size: 0.1\nsample_packing: true\n"
                              "early_stopping_patience: 3\nload_best_model_at_end: false\n{}",
                              steps))
        .value.training;
  };
  const TrainingSection t = config("eval_steps: 10\nsave_steps: 20\n");
  EXPECT_EQ(t.early_stopping_patience, 3);
  EXPECT_EQ(t.early_stopping_threshold, 0);
  EXPECT_TRUE(t.load_best_model_at_end);
  EXPECT_EQ(t.metric_for_best_model, "loss");
  EXPECT_FALSE(config("eval_steps: 10\nsave_strategy: epoch\n").load_best_model_at_end);
}

TEST(EarlyStoppingOfAxolotl, IsOffWithAPatienceOfZero) {
  const TrainingSection t =
      recipe("base_model: m\nsample_packing: true\nearly_stopping_patience: 0\neval_steps: 10\nsave_steps: 20\n")
          .value.training;
  EXPECT_FALSE(t.early_stopping_patience);
  EXPECT_FALSE(t.load_best_model_at_end);
}

TEST(Plateau, HasNoWarmupWhoseLengthMatters) {
  const ResolvedConfig r = recipe(
      "model_name_or_path: m\ndataset_name: d.jsonl\neval_strategy: epoch\neval_split: 2\nlr_scheduler_type: "
      "reduce_lr_on_plateau\nwarmup_steps: 8\nwarmup_ratio: 0.5\nmax_steps: 2\n");
  EXPECT_THAT(r.diagnostics.notes(), Not(Contains(HasSubstr("never reaches its peak"))));
}

TEST(Noise, IsBounded) {
  EXPECT_THAT(refusal_of_recipe("model_name_or_path: m\ndataset_name: d.jsonl\nneftune_noise_alpha: 1e300\n"),
              HasSubstr("neftune_noise_alpha"));
}

TEST(NoiseOfAxolotl, HasTwoNames) {
  for (const char* name : {"noisy_embedding_alpha", "neftune_noise_alpha"})
    EXPECT_EQ(
        recipe(fmt::format("base_model: m\nsample_packing: true\n{}: 5\n", name)).value.training.neftune_noise_alpha, 5)
        << name;
}

TEST(LlamaFactory, StopsEarlyAndAddsNoise) {
  const ResolvedConfig r = recipe(
      "finetuning_type: lora\neval_strategy: steps\neval_steps: 5\nval_size: 0.1\nearly_stopping_steps: 4\n"
      "neftune_alpha: 5\n");
  EXPECT_EQ(r.value.training.early_stopping_patience, 4);
  EXPECT_EQ(r.value.training.neftune_noise_alpha, 5);
  EXPECT_FALSE(r.value.training.load_best_model_at_end);
  EXPECT_THAT(r.diagnostics.notes(), Contains(HasSubstr("the result has the weights of the last step")));
}

TEST(AlignmentHandbook, AWeightIsAShareOfTheSourcesRows) {
  const qtrain::testing::TempFolder folder;
  for (const char* name : {"a", "b"}) {
    std::string lines;
    for (int i = 0; i < 10; ++i) lines += fmt::format(R"({{"text": "{}{}"}})", name, i) + "\n";
    write_file(folder / (std::string(name) + ".jsonl"), lines);
  }
  const auto config = [&](const char* seed) {
    return recipe(
        fmt::format("model_name_or_path: m\ndataset_mixture:\n  datasets:\n    - id: {0}/a.jsonl\n      weight: "
                    "0.5\n    - id: {0}/b.jsonl\n      weight: 1.0\n{1}",
                    folder.path().string(), seed));
  };
  const auto texts = [&](const char* seed) {
    std::vector<std::string> all;
    const RawRows rows = data_rows(config(seed).value, Split::train);
    for (std::int64_t i = 0; i < rows.size(); ++i) all.push_back(rows.parse(i).at("text"));
    return all;
  };
  const std::vector<std::string> rows = texts("  seed: 42\n");
  ASSERT_EQ(rows.size(), 15u);
  EXPECT_THAT(rows, AllOf(Contains("b9"), Contains("b0")));
  // Dataset.shuffle(seed=42).select(range(5)) of ten rows
  EXPECT_EQ(std::vector(rows.begin(), rows.begin() + 5), (std::vector<std::string>{"a5", "a6", "a0", "a7", "a3"}));
  EXPECT_NE(texts("  seed: 43\n"), rows);
  EXPECT_EQ(texts(""), texts("  seed: 0\n"));
}

TEST(AlignmentHandbook, WeightsAreShares) {
  const auto text = [](const char* weight, const char* more) {
    return fmt::format(
        "model_name_or_path: m\ndataset_mixture:\n  datasets:\n    - {{id: a.jsonl, weight: {}}}\n    - {{id: b.jsonl, "
        "weight: 0.5}}\n{}",
        weight, more);
  };
  for (const char* weight : {"1.5", "\"0.5\"", "-0.5", ".nan", "true"})
    EXPECT_THAT(
        refusal_of_recipe(text(weight, "")),
        AllOf(HasSubstr("datasets[0].weight is "), HasSubstr("give a number from 0 to 1"), Not(HasSubstr("share is"))))
        << weight;
  EXPECT_THAT(refusal_of_recipe(text("0", "    - {id: c.jsonl, weight: 2}\n")), HasSubstr("datasets[2].weight is 2"));
  EXPECT_THAT(refusal_of_recipe(text("1", "  seed: -1\n")),
              AllOf(HasSubstr("seed is -1, expected a whole number"), Not(HasSubstr("share_seed"))));
  const ResolvedConfig r = recipe(text("0", "  seed: 3\n  test_split_size: 0.1\n"));
  EXPECT_EQ(r.value.data.dataset_mixture.size(), 1u);
  EXPECT_THAT(r.diagnostics.notes(), AllOf(Contains(HasSubstr("\"a.jsonl\" is left out: its weight is 0")),
                                           Contains(HasSubstr("eval_split holds out other rows")),
                                           Contains(HasSubstr("their order follows from data_seed"))));
}

// The keys of recipes/smollm3/sft/sft.yaml and recipes/zephyr-7b-gemma/sft/config_full.yaml that need more than a name.
TEST(AlignmentHandbook, KeysOfItsRecipesAreRead) {
  const ResolvedConfig r = recipe(
      "model_name_or_path: m\ndataset_name: d.jsonl\npacking: true\npacking_strategy: ffd\nmax_length: 64\n"
      "dataset_kwargs:\n  add_special_tokens: false\n  append_concat_token: false\nhub_model_revision: v1\n");
  EXPECT_EQ(r.value.data.packing_strategy, Packing::bfd);
  EXPECT_EQ(r.value.hub.hub_revision, "v1");
  EXPECT_THAT(r.diagnostics.notes(),
              AllOf(Contains(HasSubstr("packing with bfd")), Contains(HasSubstr("add_special_tokens has no effect"))));
  EXPECT_THAT(refusal_of_recipe("model_name_or_path: m\ndataset_kwargs: {skip_prepare_dataset: true}"),
              HasSubstr("rows of input_ids are recognized as prepared"));
  for (const char* wrong : {"\"true\"", "1"})
    EXPECT_THAT(
        refusal_of_recipe(fmt::format("model_name_or_path: m\ndataset_kwargs: {{skip_prepare_dataset: {}}}", wrong)),
        HasSubstr("expected true or false"));
  EXPECT_THAT(refusal_of_recipe("model_name_or_path: m\ndataset_kwargs: {shuffle: true}"),
              HasSubstr("unknown member \"shuffle\""));
  EXPECT_THAT(refusal_of_recipe("model_name_or_path: m\ndataset_mixer: {a: 1.0}"),
              AllOf(HasSubstr("dataset_mixture"), Not(HasSubstr("did you mean"))));
}

}  // namespace
}  // namespace qtrain
