// Runs that continue from an adapter.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

TEST(Adapter, GoesOnFromAnEarlierOne) {
  const TempFolder folder;
  train_ok(folder.path(), tiny_lora_run(folder / "first"));
  Json config = tiny_run(folder / "second");
  config.update({{"adapter_name_or_path", (folder / "first").string()}, {"learning_rate", 0.0}});
  train_ok(folder.path(), config);
  // Nothing was trained, so the saved tensors and settings equal those that were loaded.
  EXPECT_EQ(largest_difference(folder / "first", folder / "second"), 0);
  EXPECT_EQ(read_json(folder / "first/adapter_config.json"), read_json(folder / "second/adapter_config.json"));
}

TEST(Adapter, RefusesSettingsThatDisagree) {
  const TempFolder folder;
  train_ok(folder.path(), tiny_lora_run(folder / "first"));
  Json config = tiny_run(folder / "second");
  config["adapter_name_or_path"] = (folder / "first").string();
  write_file(folder / "config.json", dump_json(config));
  for (const char* key : {"lora_r=16", "lora_alpha=32", "lora_dropout=0.5", "use_rslora=true", "use_dora=true",
                          R"(lora_target_modules=["q_proj", "v_proj"])", R"(rank_pattern={"layers.1.mlp.up_proj": 2})",
                          R"(alpha_pattern={"q_proj": 16})", R"(lora_modules_to_save=["lm_head"])"}) {
    const Outcome outcome = qtrain({.words = {(folder / "config.json").string(), key}});
    EXPECT_EQ(outcome.code, 2) << key << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("disagrees with the adapter")) << key;
  }
  for (const char* key :
       {"lora_target_modules=q_prj", R"(rank_pattern={"q_prj": 3})", R"(alpha_pattern={"q_prj": 3})"}) {
    const Outcome outcome = qtrain({.words = {(folder / "config.json").string(), key}});
    EXPECT_EQ(outcome.code, 2) << key << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("\"q_prj\" matches no layer")) << key;
  }
  EXPECT_EQ(qtrain({.words = {(folder / "config.json").string(), "lora_r=4", "lora_target_modules=all-linear"}}).code,
            0);
}

}  // namespace
}  // namespace qtrain::e2e
