#include <algorithm>
#include <filesystem>

#include "model/generation/generator.h"
#include "model/hf_folder.h"
#include "model/model_config.h"
#include "tests/golden/data.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

namespace fs = std::filesystem;

struct Row {
  std::vector<std::int32_t> prompt, answer;  ///< the answer without the end token
  double penalty;
  FinishReason finish;
};

struct Goldens {
  explicit Goldens(const std::string& name) : folder(kData / name), config(load_model_config(folder)) {
    const Json json = read_json(folder / "generation.json");
    most = json["max_new_tokens"].get<std::int64_t>();
    stop = json["eos_token_id"].get<std::int32_t>();
    for (const Json& r : json["rows"]) {
      Row row{r["prompt"].get<std::vector<std::int32_t>>(), r["ids"].get<std::vector<std::int32_t>>(),
              r["repetition_penalty"].get<double>(), FinishReason::length};
      if (row.answer.back() == stop) {
        row.answer.pop_back();
        row.finish = FinishReason::stop;
      }
      rows.push_back(row);
    }
  }
  std::vector<Row> with_penalty(double penalty) const {
    std::vector<Row> some;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(some),
                 [&](const Row& r) { return r.penalty == penalty; });
    return some;
  }

  fs::path folder;
  ModelConfig config;
  std::int64_t most;
  std::int32_t stop;
  std::vector<Row> rows;
};

std::vector<GenerationResult> answer(const Goldens& g, const std::vector<Row>& rows, GeneratorOptions options) {
  Ctx ctx({}, MatmulPrecision::storage, 2);
  std::vector<GenerationRequest> requests;
  for (const Row& r : rows) requests.push_back({r.prompt, g.most});
  options.stop_tokens = {g.stop};
  options.sampling = {.greedy = true, .repetition_penalty = rows.front().penalty};
  PlannedModel model(ctx, {.config = g.config, .base = Update::frozen},
                     {.passes = {{Pass::decode, Generator::largest(options, longest_sequence(requests, g.config))}}});
  load_parameters(ctx, model.weights(), g.folder);
  return Generator(ctx, model.runner, options).run(requests);
}

void expect_answers(const std::vector<GenerationResult>& results, const std::vector<Row>& rows) {
  ASSERT_EQ(results.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(results[i].tokens, rows[i].answer) << "prompt " << i;
    EXPECT_EQ(results[i].finish, rows[i].finish) << "prompt " << i;
  }
}

class GenerationGolden : public ::testing::TestWithParam<const char*> {
 protected:
  const Goldens goldens_{GetParam()};

  // LongRoPE rotates all rows of a batch by the angles for the longest one.
  bool depends_on_the_longest() const { return goldens_.config.ropes.front().type == RopeConfig::Type::longrope; }
};

TEST_P(GenerationGolden, GreedyAnswersAreThoseOfTransformers) {
  for (const double penalty : {1.0, 1.3}) {
    SCOPED_TRACE(penalty);
    const std::vector<Row> rows = goldens_.with_penalty(penalty);
    ASSERT_EQ(rows.size(), 4u);
    if (!depends_on_the_longest()) {
      expect_answers(answer(goldens_, rows, {}), rows);
      // When an answer is finished, the next prompt takes its place.
      expect_answers(answer(goldens_, rows, {.batch = 2}), rows);
    }
    for (const Row& row : rows) expect_answers(answer(goldens_, {row}, {.batch = 1}), {row});
  }
}

TEST_P(GenerationGolden, PromptsInSmallChunksGiveTheSameAnswers) {
  for (const std::int64_t chunk : {1, 2, 3, 5}) {
    SCOPED_TRACE(chunk);
    const std::vector<Row> rows = goldens_.with_penalty(1.0);
    if (!depends_on_the_longest()) expect_answers(answer(goldens_, rows, {.batch = 3, .prefill_tokens = chunk}), rows);
    for (const Row& row : rows) expect_answers(answer(goldens_, {row}, {.batch = 1, .prefill_tokens = chunk}), {row});
  }
}

INSTANTIATE_TEST_SUITE_P(Case, GenerationGolden,
                         ::testing::Values("llama_gqa3_tied", "mistral_window", "qwen3_gqa7_tied", "gemma2",
                                           "qwen3_moe", "smollm3", "olmo2", "granite", "gemma3", "mixtral", "phi3",
                                           "phi3_longrope", "gpt_oss", "qwen2_moe", "olmo3", "exaone4", "ministral3",
                                           "hunyuan", "olmoe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace qtrain::testing
