#include "model/generation/continuous_batch.h"

#include <gtest/gtest.h>

#include "tests/cuda/schedules.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

using Ids = std::vector<std::int32_t>;

// Under the harness, GEMMs compute row by row, so a sequence has the same bits in any batch; GPUs may choose other
// algorithms.
TEST(ContinuousBatchOnCuda, AnswersAreThoseOfTheGenerator) {
  const BatchLimits limits{.sequences = 2, .prefill_tokens = 8, .context = 40, .cache_tokens = 48};
  const std::vector<Ids> prompts{{3, 4, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {28, 27}};
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  const TransformerOptions options{.config = parse_model_config(small_config({}), "c"), .base = Update::frozen};
  const GeneratorOptions alone{.batch = 1, .sampling = {.greedy = true}};
  PlannedModel model(ctx, options, {.passes = {{Pass::decode, ContinuousBatch::largest(limits)}}});
  PlannedModel reference(ctx, options, {.passes = {{Pass::decode, Generator::largest(alone, 40)}}});
  for (PlannedModel* m : {&model, &reference}) m->weights().initialize(ctx, 5);
  std::vector<Ids> got(prompts.size());
  ContinuousBatch batch(ctx, {&model.runner}, limits);
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back({prompts[i], 14});
    batch.add({.prompt = prompts[i],
               .max_new_tokens = 14,
               .sampling = {.greedy = true},
               .on_token = [&, i](const AnswerToken& t) {
                 got[i].push_back(t.id);
                 return false;
               }});
  }
  while (!batch.empty()) batch.step();
  const auto want = Generator(ctx, reference.runner, alone).run(requests);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i].tokens) << i;
}

}  // namespace
}  // namespace qtrain::testing
