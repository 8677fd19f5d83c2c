#include "model/generation/generator.h"

#include <gmock/gmock.h>

#include "tests/core/temp_folder.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Prompts = std::vector<std::vector<std::int32_t>>;

struct Run {
  Prompts prompts;
  GeneratorOptions options;
  std::int64_t most = 8;
  Json config = Json::object();
  Generator::OnToken on_token = {};
  int threads = 2;
};

std::vector<GenerationResult> run(const Run& r) {
  Ctx ctx({}, MatmulPrecision::storage, r.threads);
  Transformer model(ctx, {.config = parse_model_config(small_config(r.config), "c"), .base = Update::frozen});
  std::vector<GenerationRequest> requests;
  for (const auto& p : r.prompts) requests.push_back({p, r.most});
  const BatchSize size = Generator::largest(r.options, longest_sequence(requests, model.config()));
  Runner runner(model, {.passes = {{Pass::decode, size}}});
  model.weights().initialize(ctx, 5);
  return Generator(ctx, runner, r.options).run(requests, r.on_token);
}

std::vector<std::vector<std::int32_t>> tokens_of(const std::vector<GenerationResult>& results) {
  std::vector<std::vector<std::int32_t>> out;
  for (const GenerationResult& r : results) out.push_back(r.tokens);
  return out;
}

const Prompts kPrompts{{3, 4, 5}, {7}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {28, 27}, {11, 11, 11, 11}};

TEST(Generator, SampledAnswersDoNotDependOnBatchOrThreads) {
  GeneratorOptions options{.sampling = {.temperature = 1.5, .seed = 3}};
  const auto reference = tokens_of(run({kPrompts, options}));
  ASSERT_THAT(reference, SizeIs(kPrompts.size()));
  for (const auto& answer : reference) EXPECT_THAT(answer, SizeIs(8));
  for (const std::int64_t batch : {1, 2, 4}) {
    options.batch = batch;
    options.prefill_tokens = batch + 1;
    EXPECT_EQ(tokens_of(run({.prompts = kPrompts, .options = options, .threads = 1})), reference) << batch;
  }
  options.sampling.seed = 4;
  EXPECT_NE(tokens_of(run({kPrompts, options})), reference);
}

TEST(Generator, StopTokensEndAnAnswerAndAreLeftOut) {
  GeneratorOptions options{.sampling = {.greedy = true}};
  const auto free = run({kPrompts, options});
  const std::int32_t stop = free[0].tokens[2];
  options.stop_tokens = {stop};
  const auto stopped = run({kPrompts, options});
  for (std::size_t i = 0; i < free.size(); ++i) {
    const auto at = std::find(free[i].tokens.begin(), free[i].tokens.end(), stop);
    EXPECT_EQ(stopped[i].tokens, std::vector<std::int32_t>(free[i].tokens.begin(), at));
    EXPECT_EQ(stopped[i].finish, at == free[i].tokens.end() ? FinishReason::length : FinishReason::stop);
  }
}

TEST(Generator, TheCallerSeesEachTokenAndMayStop) {
  std::vector<std::vector<std::size_t>> lengths(kPrompts.size());
  const auto on_token = [&](std::size_t request, const std::vector<std::int32_t>& tokens) {
    lengths[request].push_back(tokens.size());
    return request == 1 && tokens.size() == 3;
  };
  const auto results =
      run({.prompts = kPrompts, .options = {.batch = 2, .sampling = {.greedy = true}}, .on_token = on_token});
  EXPECT_THAT(lengths[0], ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(lengths[1], ::testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(results[1].tokens, SizeIs(3));
  EXPECT_EQ(results[1].finish, FinishReason::stop);
  EXPECT_EQ(results[0].finish, FinishReason::length);
}

TEST(Generator, EndsAtTheModelsLength) {
  const Json short_model{{"max_position_embeddings", 12}};
  const auto results = run({.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {5}}, .most = 100, .config = short_model});
  EXPECT_THAT(results[0].tokens, SizeIs(3));
  EXPECT_THAT(results[1].tokens, SizeIs(11));
  const Error full = error_of([&] {
    run({.prompts = {{1}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, .config = short_model});
  });
  EXPECT_EQ(full.kind(), ErrorKind::input);
  EXPECT_THAT(full.what(), ::testing::AllOf(HasSubstr("prompt 2"), HasSubstr("12")));
}

TEST(Generator, OddRequests) {
  EXPECT_THAT(run({.prompts = {}}), SizeIs(0));
  const auto nothing = run({.prompts = {{1}, {2}}, .most = 0});
  EXPECT_THAT(nothing[0].tokens, SizeIs(0));
  EXPECT_THAT(error_of([&] { run({.prompts = {{1}, {}}}); }).what(), HasSubstr("prompt 2"));
}

}  // namespace
}  // namespace qtrain::testing
