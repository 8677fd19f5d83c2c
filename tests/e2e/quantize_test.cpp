// quantize: turns a model folder into the folder that bitsandbytes would save.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

const fs::path kBnb = source_folder() / "tests/quant/goldens";

std::vector<std::string> quantize_words(const fs::path& output, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"quantize", "--model", (kBnb / "bnb_model").string(), "--output", output.string()};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Quantize, WritesNestedNf4ByDefault) {
  const TempFolder folder;
  const Outcome outcome = qtrain_ok({.words = quantize_words(folder / "out", {"--json"})});
  EXPECT_EQ(Json::parse(outcome.out).at("matrices"), 7);
  for (const char* file : {"config.json", "model.safetensors"})
    EXPECT_TRUE(read_text(folder / "out" / file) == read_text(kBnb / "bnb_model_nf4" / file)) << file;
}

TEST(Quantize, TakesWhatTheFlagsSay) {
  const TempFolder folder;
  qtrain_ok({.words = quantize_words(folder / "out", {"--quant_type", "fp4", "--double-quant", "false",
                                                      "--skip_modules", "down_proj", "--compute_dtype", "float32"})});
  for (const char* file : {"config.json", "model.safetensors"})
    EXPECT_TRUE(read_text(folder / "out" / file) == read_text(kBnb / "bnb_model_fp4" / file)) << file;
  const Outcome inspected = qtrain_ok({.words = {"inspect", (folder / "out").string()}});
  EXPECT_THAT(inspected.out, HasSubstr("12 uint8"));
}

TEST(Quantize, RefusesWhatItCannotDo) {
  const TempFolder folder;
  const Outcome size = qtrain({.words = quantize_words(folder / "out", {"--blocksize", "48"})});
  EXPECT_EQ(size.code, 2);
  EXPECT_THAT(size.err, HasSubstr("48"));
  EXPECT_EQ(qtrain({.words = quantize_words(folder / "out", {"--quant_type", "int4"})}).code, 2);
  EXPECT_EQ(qtrain({.words = {"quantize", "--model", (kBnb / "bnb_model").string()}}).code, 2);
  EXPECT_EQ(qtrain({.words = {"quantize", "--model", "/nowhere", "--output", (folder / "out").string()}}).code, 3);
  const Outcome twice = qtrain(
      {.words = {"quantize", "--model", (kBnb / "bnb_model_nf4").string(), "--output", (folder / "out").string()}});
  EXPECT_EQ(twice.code, 3);
  EXPECT_FALSE(fs::exists(folder / "out"));
}

}  // namespace
}  // namespace qtrain::e2e
