#include "app/answers.h"

#include <gmock/gmock.h>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(GenerationDefaults, NameWhatHasNoEffect) {
  const TempFolder folder;
  const auto unused = [&](const Json& json) {
    write_file(folder / "generation_config.json", json.dump());
    return load_generation_defaults(folder / "generation_config.json").unused;
  };
  const std::pair<const char*, Json> said[] = {{"no_repeat_ngram_size", 3},
                                               {"num_beams", 4},
                                               {"penalty_alpha", 0.6},
                                               {"suppress_tokens", {1, 2}},
                                               {"begin_suppress_tokens", {220}},
                                               {"bad_words_ids", Json::array({Json::array({5})})},
                                               {"forced_bos_token_id", 0},
                                               {"forced_eos_token_id", {2, 3}},
                                               {"exponential_decay_length_penalty", {5, 1.1}},
                                               {"encoder_repetition_penalty", 1.2},
                                               {"presence_penalty", 1.5},
                                               {"typical_p", 0.9},
                                               {"min_new_tokens", 4},
                                               {"stop_strings", "END"},
                                               {"guidance_scale", 2}};
  for (const auto& [key, value] : said) EXPECT_THAT(unused({{key, value}}), ElementsAre(key)) << value;
  const std::pair<const char*, Json> quiet[] = {{"no_repeat_ngram_size", 0},
                                                {"num_beams", 1},
                                                {"penalty_alpha", nullptr},
                                                {"suppress_tokens", Json::array()},
                                                {"typical_p", 1},
                                                {"guidance_scale", 1.0},
                                                {"repetition_penalty", 1.3},
                                                {"max_length", 4096},
                                                {"length_penalty", 2},
                                                {"use_cache", false},
                                                {"transformers_version", "5.0.0"}};
  for (const auto& [key, value] : quiet) EXPECT_THAT(unused({{key, value}}), IsEmpty()) << key << value;
  EXPECT_THAT(unused({{"top_h", 0.4}, {"num_beams", 2}, {"top_k", 5}}), ElementsAre("num_beams", "top_h"));
}

}  // namespace
}  // namespace qtrain::testing
